//! The storage: three commands, and the code that performs them. Calls fail and hang by seed.

use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::command::Command;
use procession::config::RuntimeBuilder;
use procession::pool::Pool;
use procession::{BoxError, Runtime};

use crate::Options;

/// The length of a line of the list: 16 digits, and the end of the line.
pub(crate) const LINE: u64 = 17;

/// Reads the block of the job with this number.
#[derive(Clone)]
pub(crate) struct Read(pub(crate) u64);

/// Hashes a block.
#[derive(Clone)]
pub(crate) struct Hash(pub(crate) Arc<[u8]>);

/// Writes the hash of the job with this number into the list.
#[derive(Clone)]
pub(crate) struct Write(pub(crate) u64, pub(crate) u64);

impl Command for Read {
    type Output = Arc<[u8]>;
}

impl Command for Hash {
    type Output = u64;
}

impl Command for Write {
    type Output = ();
}

/// Performs the commands.
pub(crate) struct Storage {
    options: Options,
    /// Decides which calls fail.
    random: AtomicU64,
    /// The threads on which calls block.
    pool: Pool,
}

impl Storage {
    /// Opens the file, and begins a new list.
    pub(crate) fn open(options: &Options) -> Result<Arc<Storage>, BoxError> {
        let Options { file, list, jobs, seed, .. } = options;
        let original = file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
        if list.canonicalize().is_ok_and(|list| list == original) {
            return Err("the LIST is the FILE".into());
        }
        File::create(list).map_err(|error| format!("{}: {error}", list.display()))?.set_len(jobs * LINE)?;
        Ok(Arc::new(Storage { options: options.clone(), random: AtomicU64::new(*seed), pool: Pool::new(4)? }))
    }

    fn read(&self, Read(job): Read) -> io::Result<Arc<[u8]>> {
        let mut file = File::open(&self.options.file)?;
        let (size, jobs) = (u128::from(file.metadata()?.len()), u128::from(self.options.jobs));
        let begin = |job: u64| (size * u128::from(job) / jobs) as u64;
        let mut block = vec![0; (begin(job + 1) - begin(job)) as usize];
        file.seek(SeekFrom::Start(begin(job)))?;
        file.read_exact(&mut block)?;
        Ok(block.into())
    }

    /// The hash FNV-1a of 64 bits.
    fn hash(&self, Hash(block): Hash) -> io::Result<u64> {
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Ok(block.iter().fold(0xcbf2_9ce4_8422_2325, next))
    }

    fn write(&self, Write(job, hash): Write) -> io::Result<()> {
        let mut list = OpenOptions::new().write(true).open(&self.options.list)?;
        list.seek(SeekFrom::Start(job * LINE))?;
        writeln!(list, "{hash:016x}")
    }

    /// A random number below `limit`.
    fn below(&self, limit: u64) -> u64 {
        // Ordering: Relaxed: no other data depends on it.
        let mixed = self.random.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) % limit
    }

    /// A builder of a runtime whose processes may yield the commands.
    pub(crate) fn serve(self: &Arc<Storage>) -> RuntimeBuilder {
        let [reads, hashes, writes] = [self; 3].map(Arc::clone);
        Runtime::builder()
            .handler_async(move |command| call(reads.clone(), Storage::read, command))
            .at_most(16)
            .handler_async(move |command| call(hashes.clone(), Storage::hash, command))
            .at_most(4)
            .handler_async(move |command| call(writes.clone(), Storage::write, command))
            .at_most(16)
    }
}

/// Performs a command on the pool, where it may block. Some calls fail, and a few never end.
async fn call<C: Command>(
    storage: Arc<Storage>,
    perform: fn(&Storage, C) -> io::Result<C::Output>,
    command: C,
) -> Result<C::Output, BoxError> {
    if storage.below(100) < storage.options.fail {
        if storage.below(20) == 0 {
            pending::<()>().await;
        }
        return Err("the storage is busy".into());
    }
    Ok(storage.clone().pool.spawn(move || perform(&storage, command))?.await??)
}
