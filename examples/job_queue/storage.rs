//! The storage: three commands, and the code that performs them. Calls fail and hang by seed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::BoxError;
use procession::command::Command;
use procession::pool::Pool;

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

pub(crate) struct Storage {
    pub(crate) file: PathBuf,
    pub(crate) list: PathBuf,
    /// The size of the file, in bytes.
    pub(crate) size: u64,
    pub(crate) jobs: u64,
    /// The share of calls that fail, in percent.
    pub(crate) fail: u64,
    /// Decides which calls fail.
    pub(crate) random: AtomicU64,
    /// The threads on which calls block.
    pub(crate) pool: Pool,
}

/// The future of a call.
type Answer<C> = Pin<Box<dyn Future<Output = Result<<C as Command>::Output, BoxError>> + Send>>;

impl Storage {
    pub(crate) fn read(&self, Read(job): Read) -> io::Result<Arc<[u8]>> {
        let begin = |job: u64| (u128::from(self.size) * u128::from(job) / u128::from(self.jobs)) as u64;
        let mut block = vec![0; (begin(job + 1) - begin(job)) as usize];
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(begin(job)))?;
        file.read_exact(&mut block)?;
        Ok(block.into())
    }

    /// The hash FNV-1a of 64 bits.
    pub(crate) fn hash(&self, Hash(block): Hash) -> io::Result<u64> {
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Ok(block.iter().fold(0xcbf2_9ce4_8422_2325, next))
    }

    pub(crate) fn write(&self, Write(job, hash): Write) -> io::Result<()> {
        let mut list = OpenOptions::new().write(true).open(&self.list)?;
        list.seek(SeekFrom::Start(job * LINE))?;
        writeln!(list, "{hash:016x}")
    }

    /// A random number below `limit`.
    fn below(&self, limit: u64) -> u64 {
        // Ordering: Relaxed: no other data depends on it.
        let mixed = self.random.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) % limit
    }

    /// Makes a handler of a method. Its future waits for a job on the pool, where the method may block.
    pub(crate) fn handler<C: Command>(
        self: &Arc<Storage>,
        perform: fn(&Storage, C) -> io::Result<C::Output>,
    ) -> impl Fn(C) -> Answer<C> + use<C> {
        let storage = self.clone();
        move |command| {
            let storage = storage.clone();
            Box::pin(async move {
                if storage.below(100) < storage.fail {
                    if storage.below(20) == 0 {
                        std::future::pending::<()>().await;
                    }
                    return Err("the storage is busy".into());
                }
                let performer = storage.clone();
                let job = storage.pool.spawn(move || perform(&performer, command));
                Ok(job.map_err(|refused| refused.into_parts().1)?.await??)
            })
        }
    }
}
