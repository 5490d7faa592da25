/* A library that a program is started with (LD_PRELOAD). It stands between the program and the calls that write, sync or
 * cut a file of one directory. PROCESSION_FAILING_HOW says what it does:
 *
 *   error, torn  The call with the number PROCESSION_FAILING_AT fails, and as many as PROCESSION_FAILING_FOR from there on.
 *                With `torn` a write writes half of its bytes first.
 *   kill         The program is killed in front of that call.
 *   full         From that call on the disk is full, until the program writes the file `heal`.
 *   trace        Prints these calls, and the lines that the program prints itself.
 *   power        The sync with that number fails, and the machine loses its power in front of a later call, as many calls
 *                later as PROCESSION_FAILING_FOR says. The directory PROCESSION_FAILING_DISK has what is on the disk then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum what { NONE, ERROR, FULL, TORN };

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static long calls;
static int healed;

static const char *how(void)
{
    const char *kind = getenv("PROCESSION_FAILING_HOW");
    return kind ? kind : "";
}

static int is(const char *kind)
{
    return !strcmp(how(), kind);
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* The name of a path in the directory, or null. */
static const char *within(const char *path)
{
    const char *directory = getenv("PROCESSION_FAILING_IN");
    size_t length = directory ? strlen(directory) : 0;
    if (!length || strncmp(path, directory, length) != 0)
        return NULL;
    return path + length;
}

static const char *name_of(int fd, char *path, size_t size)
{
    char link[64];
    ssize_t length;
    const char *name;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, size - 1);
    if (length < 0)
        return NULL;
    path[length] = 0;
    name = within(path);
    /* The index of the WAL is in shared memory, and is not needed after a crash. It needs room all the same. */
    if (name && !is("full") && length > 4 && strcmp(path + length - 4, "-shm") == 0)
        return NULL;
    return name;
}

/* The disk, as it is if the machine loses its power: files with those pages that a sync has written. */

#define PAGE 4096
#define PAGES 4096

struct file {
    char name[64];
    unsigned char dirty[PAGES];
};

static struct file files[16];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long syncs, to_go = -1;

static struct file *file_of(const char *name)
{
    int at = 0;
    while (at < 15 && files[at].name[0] && strcmp(files[at].name, name) != 0)
        at++;
    snprintf(files[at].name, sizeof files[at].name, "%s", name);
    return &files[at];
}

static void dirty(const char *name, off_t at, ssize_t length)
{
    off_t page;
    for (page = at / PAGE; length > 0 && page <= (at + length - 1) / PAGE && page < PAGES; page++)
        file_of(name)->dirty[page] = 1;
}

/* Writes dirty pages of a file to the disk: all of them, or some that a number chooses. */
static void write_back(struct file *file, long choice)
{
    char real[4096], disk[4096], bytes[PAGE];
    struct stat there;
    int from, to, page;
    snprintf(real, sizeof real, "%s%s", getenv("PROCESSION_FAILING_IN"), file->name);
    snprintf(disk, sizeof disk, "%s%s", getenv("PROCESSION_FAILING_DISK"), file->name);
    from = open(real, O_RDONLY);
    if (from < 0 || fstat(from, &there) != 0 || !S_ISREG(there.st_mode)) {
        if (from >= 0)
            close(from);
        return;
    }
    to = open(disk, O_WRONLY | O_CREAT, 0600);
    if (choice % 2 == 0)
        (void)!REAL(ftruncate)(to, there.st_size);
    for (page = 0; page < PAGES; page++) {
        ssize_t length;
        if (!file->dirty[page] || (choice && (choice * 7919 + page * 104729) % 5 < 2))
            continue;
        length = pread(from, bytes, PAGE, (off_t)page * PAGE);
        if (length > 0)
            (void)!REAL(pwrite)(to, bytes, (size_t)length, (off_t)page * PAGE);
        file->dirty[page] = 0;
    }
    close(from);
    close(to);
}

static void lose_power(void)
{
    int at;
    for (at = 0; at < 16; at++)
        if (files[at].name[0])
            write_back(&files[at], 1 + number("PROCESSION_FAILING_AT") * 31 + number("PROCESSION_FAILING_FOR") + at);
    dprintf(2, "\nthe power is lost\n");
    kill(getpid(), SIGKILL);
}

/* A call of `power`. Returns whether it fails. */
static int of_power(const char *name, int syncs_file)
{
    if (to_go > 0 && --to_go == 0)
        lose_power();
    if (!syncs_file)
        return 0;
    if (syncs++ == number("PROCESSION_FAILING_AT")) {
        dprintf(2, "\na call fails\n");
        to_go = number("PROCESSION_FAILING_FOR");
        /* The system takes the pages for written. They are not on the disk. */
        memset(file_of(name)->dirty, 0, PAGES);
        return 1;
    }
    write_back(file_of(name), 0);
    return 0;
}

static enum what fault(const char *name, const char *call)
{
    long first, count, at;
    if (!how()[0])
        return NONE;
    if (is("trace")) {
        dprintf(2, "\n%s %s\n", call, name);
        return NONE;
    }
    if (!strcmp(name, "/heal")) {
        healed = 1;
        return NONE;
    }
    first = number("PROCESSION_FAILING_AT");
    count = is("full") ? 1L << 40 : number("PROCESSION_FAILING_FOR");
    at = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (healed || at < first || at >= first + count)
        return NONE;
    if (at == first)
        dprintf(2, "\na call fails: %s %s\n", call, name);
    if (is("kill"))
        kill(getpid(), SIGKILL);
    return is("full") ? FULL : is("torn") ? TORN : ERROR;
}

#define FAIL(what)                                                                                                     \
    do {                                                                                                               \
        errno = what == FULL ? ENOSPC : EIO;                                                                           \
        return -1;                                                                                                     \
    } while (0)

#define WRITE(name, head, rest, offset)                                                                                \
    ssize_t name head                                                                                                  \
    {                                                                                                                  \
        char path[4096];                                                                                               \
        const char *file = name_of(fd, path, sizeof path);                                                             \
        enum what what;                                                                                                \
        if (fd == 1 && is("trace"))                                                                                    \
            dprintf(2, "\n%.*s\n", (int)length, (const char *)bytes);                                                  \
        if (!file)                                                                                                     \
            return REAL(name) rest;                                                                                    \
        if (is("power")) {                                                                                             \
            ssize_t written;                                                                                           \
            pthread_mutex_lock(&lock);                                                                                 \
            of_power(file, 0);                                                                                         \
            written = REAL(name) rest;                                                                                 \
            dirty(file, offset, written);                                                                              \
            pthread_mutex_unlock(&lock);                                                                               \
            return written;                                                                                            \
        }                                                                                                              \
        what = fault(file, #name);                                                                                     \
        if (what == TORN) {                                                                                            \
            length = length / 2;                                                                                       \
            if (length)                                                                                                \
                (void)!(REAL(name)) rest;                                                                              \
        }                                                                                                              \
        if (what != NONE)                                                                                              \
            FAIL(what);                                                                                                \
        return REAL(name) rest;                                                                                        \
    }

#define OTHER(name, head, rest, syncs_file)                                                                            \
    int name head                                                                                                      \
    {                                                                                                                  \
        char path[4096];                                                                                               \
        const char *file = name_of(fd, path, sizeof path);                                                             \
        enum what what;                                                                                                \
        if (!file)                                                                                                     \
            return REAL(name) rest;                                                                                    \
        if (is("power")) {                                                                                             \
            int result;                                                                                                \
            pthread_mutex_lock(&lock);                                                                                 \
            result = of_power(file, syncs_file) ? -1 : REAL(name) rest;                                                \
            pthread_mutex_unlock(&lock);                                                                               \
            if (result != 0)                                                                                           \
                errno = EIO;                                                                                           \
            return result;                                                                                             \
        }                                                                                                              \
        what = fault(file, #name);                                                                                     \
        if (what != NONE)                                                                                              \
            FAIL(what);                                                                                                \
        return REAL(name) rest;                                                                                        \
    }

WRITE(write, (int fd, const void *bytes, size_t length), (fd, bytes, length), lseek(fd, 0, SEEK_CUR) - written)
WRITE(pwrite, (int fd, const void *bytes, size_t length, off_t at), (fd, bytes, length, at), at)
WRITE(pwrite64, (int fd, const void *bytes, size_t length, off64_t at), (fd, bytes, length, at), at)
OTHER(fsync, (int fd), (fd), 1)
OTHER(fdatasync, (int fd), (fd), 1)
OTHER(ftruncate, (int fd, off_t length), (fd, length), 0)
OTHER(ftruncate64, (int fd, off64_t length), (fd, length), 0)

/* A file that is removed is removed on the disk, too. SQLite syncs the directory then. */
int unlink(const char *path)
{
    const char *name = within(path);
    if (name && is("power")) {
        char disk[4096];
        snprintf(disk, sizeof disk, "%s%s", getenv("PROCESSION_FAILING_DISK"), name);
        pthread_mutex_lock(&lock);
        memset(file_of(name)->dirty, 0, PAGES);
        REAL(unlink)(disk);
        pthread_mutex_unlock(&lock);
    }
    return REAL(unlink)(path);
}
