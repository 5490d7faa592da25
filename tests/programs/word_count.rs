//! The example `word_count` as its users have it: a program with arguments, output and an exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::example::Example;

static PROGRAM: Example = Example::new("word_count");

/// An empty directory for one test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("word_count").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn write(path: PathBuf, content: impl AsRef<[u8]>) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// The outcome of a run: the lines of its standard output, standard error, and the exit code.
struct Ran {
    lines: Vec<String>,
    errors: String,
    code: Option<i32>,
}

impl Ran {
    fn new(output: Output) -> Ran {
        let text = String::from_utf8(output.stdout).expect("what is printed is UTF-8, whatever was read");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
        Ran { lines: text.lines().map(String::from).collect(), errors, code: output.status.code() }
    }

    fn total(&self) -> &str {
        self.lines.last().map_or("", String::as_str)
    }

    fn check(&self, total: &str, code: i32) {
        assert_eq!((self.total(), self.code), (total, Some(code)), "{}", self.errors);
    }
}

fn run<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Ran {
    let mut command = PROGRAM.command();
    command.args(paths.into_iter().map(|path| path.as_ref().to_owned()));
    Ran::new(command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_tree_is_summed_up_with_hidden_and_empty_files() {
    let root = directory("tree");
    write(root.join("text"), "one two\ntwo three\n");
    write(root.join("no newline at the end"), "three");
    write(root.join("empty"), "");
    write(root.join(".hidden"), "three two\n");
    write(root.join(".hidden directory/deep/file"), "\n\n  \t\n");
    let ran = run([&root]);
    ran.check("total files=5 lines=6 words=7 bytes=39 failed=0", 0);
    assert_eq!(ran.lines[..3], ["           3  three", "           3  two", "           1  one"]);
    assert_eq!(ran.errors, "", "where no terminal is, there is no progress bar");

    let twice = [&root.join("text"), &root.join("text")];
    run(twice).check("total files=2 lines=4 words=8 bytes=36 failed=0", 0);
    run([root.join("empty")]).check("total files=1 lines=0 words=0 bytes=0 failed=0", 0);
}

#[test]
fn any_bytes_are_words_and_none_of_them_gets_to_the_terminal() {
    let root = directory("bytes");
    let file =
        write(root.join("bytes"), b"\xff\xfe\x00 \x1b[31m\x0b\xc2\xa0\x0ccaf\xc3\xa9\rcaf\xc3\xa9\x85\xff\xfe\x00");
    let ran = run([file]);
    ran.check("total files=1 lines=0 words=5 bytes=28 failed=0", 0);
    let expected = ["\\u{1b}[31m", "café", "café\\x85\\xff\\xfe\\u{0}", "\u{a0}", "\\xff\\xfe\\u{0}"];
    let words: Vec<&str> = ran.lines[..5].iter().map(|line| line.trim_start().split_once("  ").unwrap().1).collect();
    assert_eq!(words, expected);
}

#[test]
fn a_word_across_chunks_counts_once() {
    let root = directory("chunks");
    // Longer than any chunk, and no word of it begins or ends where a power of two does.
    let text = "across the\nboundary ".repeat(150_000);
    let file = write(root.join("words"), &text);
    let ran = run([&file]);
    let total = "total files=1 lines=150000 words=450000 bytes=3000000 failed=0";
    ran.check(total, 0);
    let words = ["across", "boundary", "the"].map(|word| format!("{:>12}  {word}", 150_000));
    assert_eq!(ran.lines[..3], words);
    assert_eq!(ran.lines.len(), 4);

    let one = write(root.join("one word"), vec![b'x'; 3_000_000]);
    run([one]).check("total files=1 lines=0 words=1 bytes=3000000 failed=0", 0);
}

#[test]
fn many_files_are_all_counted() {
    let root = directory("many");
    for number in 0..3_000 {
        write(root.join(format!("{}/{number}", number % 30)), format!("file {number}\n"));
    }
    let ran = run([&root]);
    ran.check("total files=3000 lines=3000 words=6000 bytes=28890 failed=0", 0);
    assert_eq!(ran.lines[0], "        3000  file");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_counted() {
    let root = directory("failures");
    let good = write(root.join("good"), "a b\n");
    let ran = run([root.join("missing"), good.clone(), root.join("also\nmissing")]);
    ran.check("total files=1 lines=1 words=2 bytes=4 failed=2", 1);
    assert_eq!(ran.errors.lines().count(), 2, "{}", ran.errors);
    assert!(ran.errors.contains("failures/missing: "), "{}", ran.errors);
    assert!(ran.errors.contains("failures/also\\nmissing: "), "{}", ran.errors);
    // Can be opened, and not be read: there is nothing at address zero.
    #[cfg(target_os = "linux")]
    run([Path::new("/proc/self/mem"), &good]).check("total files=1 lines=1 words=2 bytes=4 failed=1", 1);
}

#[test]
fn without_a_path_or_with_an_unknown_option_there_is_usage() {
    for arguments in [&[][..], &["--surely-not", "."]] {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.lines.len()), (Some(2), 0));
        assert!(ran.errors.contains("usage: word_count"), "{}", ran.errors);
    }
    let ran = run(["--help"]);
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""));
    assert!(ran.lines.iter().any(|line| line.contains("usage: word_count")));
}

#[test]
fn nobody_reads_the_output_and_that_is_no_failure() {
    let root = directory("unread");
    let file = write(root.join("file"), "words");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = Ran::new(PROGRAM.command().arg(file).stdout(writer).output().unwrap());
    assert_eq!((ran.code, ran.errors.as_str()), (Some(0), ""));
}

#[cfg(unix)]
mod unix {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::example::signal;
    use crate::wait::wait;

    fn fifo(path: PathBuf) -> PathBuf {
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn links_and_pipes_in_a_tree_are_passed_over_and_those_asked_for_are_not() {
        let root = directory("links");
        write(root.join("tree/file"), "a b\n");
        symlink("file", root.join("tree/link to file")).unwrap();
        symlink("..", root.join("tree/link to directory")).unwrap();
        symlink("nowhere", root.join("tree/dangling")).unwrap();
        symlink("loop", root.join("tree/loop")).unwrap();
        fifo(root.join("tree/pipe"));
        run([root.join("tree")]).check("total files=1 lines=1 words=2 bytes=4 failed=0", 0);

        symlink("tree", root.join("to tree")).unwrap();
        let links = [root.join("to tree"), root.join("tree/link to file")];
        run(links).check("total files=2 lines=2 words=4 bytes=8 failed=0", 0);
        let broken = [root.join("tree/dangling"), root.join("tree/loop")];
        run(broken).check("total files=0 lines=0 words=0 bytes=0 failed=2", 1);
    }

    #[test]
    fn standard_input_is_a_path_like_others() {
        let mut child = PROGRAM
            .command()
            .arg("/dev/stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // More than a pipe holds, and in pieces that end anywhere.
        for piece in "one two three\n".repeat(20_000).as_bytes().chunks(999) {
            input.write_all(piece).unwrap();
        }
        drop(input);
        let ran = Ran::new(child.wait_with_output().unwrap());
        ran.check("total files=1 lines=20000 words=60000 bytes=280000 failed=0", 0);
    }

    /// Has a pipe counted, writes `text` into it, and interrupts the program when that has been read (but for what the
    /// pipe itself holds) while the pipe is still open, so that one who reads on never comes to an end.
    fn interrupted(name: &str, text: String) -> Ran {
        let pipe = fifo(directory(name).join("pipe"));
        let child = PROGRAM
            .command()
            .arg(&pipe)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Opening a pipe waits for the reader, and so does writing more than it holds: in a thread, so that the test
        // fails if there never is one.
        let (written, is_written) = mpsc::channel();
        thread::spawn(move || {
            let mut pipe = fs::OpenOptions::new().write(true).open(pipe).unwrap();
            pipe.write_all(text.as_bytes()).unwrap();
            let _ = written.send(pipe);
        });
        let pipe = wait(&is_written).expect("the pipe is read");
        signal(&child, "INT");
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(child.wait_with_output()));
        let output = wait(&end).expect("it ends");
        drop(pipe);
        Ran::new(output.unwrap())
    }

    #[test]
    fn ctrl_c_ends_it_in_the_midst_of_a_read_that_never_returns() {
        let ran = interrupted("silent pipe", String::new());
        ran.check("total files=0 lines=0 words=0 bytes=0 failed=0", 130);
        assert!(ran.errors.contains("1 blocking job"), "{}", ran.errors);
    }

    #[test]
    fn ctrl_c_prints_what_has_been_counted_so_far() {
        let text = "word\n".repeat(400_000);
        let size = text.len() as u64;
        let ran = interrupted("flowing pipe", text);
        assert_eq!(ran.code, Some(130), "{}", ran.errors);
        let numbers: Vec<u64> = ran.total().split(['=', ' ']).filter_map(|part| part.parse().ok()).collect();
        let [files, lines, words, bytes, failed] = numbers[..] else { panic!("{:?}", ran.total()) };
        assert_eq!((files, failed), (0, 0), "the pipe was not read to its end");
        assert_eq!((lines, bytes), (words, 5 * words));
        // Only a few blocks may be on their way at a time, so most had been counted when the last was written.
        assert!(bytes > size / 2 && bytes <= size, "{bytes} of {size}");
    }
}
