//! The storage: three commands, and the code that performs them. Some calls fail or hang.

use std::fs::{File, OpenOptions};
use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use procession::command::Command;
use procession::config::RuntimeBuilder;
use procession::pool::Pool;
use procession::{BoxError, Runtime};

use crate::Options;

/// The length of a line of the list: 16 digits, and the end of the line.
const LINE: u64 = 17;

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
struct Storage {
    options: Options,
    /// The threads on which calls block.
    pool: Pool,
}

type Perform<C> = fn(&Storage, C) -> io::Result<<C as Command>::Output>;

/// Opens the file, and begins a new list. Returns the builder of a runtime whose processes may yield the commands.
pub(crate) fn serve(options: &Options) -> Result<RuntimeBuilder, BoxError> {
    let Options { file, list, jobs, .. } = options;
    let original = file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
    if list.canonicalize().is_ok_and(|list| list == original) {
        return Err("the LIST is the FILE".into());
    }
    File::create(list).map_err(|error| format!("{}: {error}", list.display()))?.set_len(jobs * LINE)?;
    let storage = Arc::new(Storage { options: options.clone(), pool: Pool::new(4)? });
    let [reads, hashes, writes] = [&storage; 3].map(Arc::clone);
    Ok(Runtime::builder()
        .handler_async(move |command| reads.clone().call(Storage::read, command))
        .at_most(16)
        .handler_async(move |command| hashes.clone().call(Storage::hash, command))
        .at_most(4)
        .handler_async(move |command| writes.clone().call(Storage::write, command))
        .at_most(16))
}

impl Storage {
    /// Performs a command on the pool, where it may block. Some calls fail, and a few never end.
    async fn call<C: Command>(self: Arc<Storage>, perform: Perform<C>, command: C) -> Result<C::Output, BoxError> {
        // A hash by keys that are random.
        let random = RandomState::new().hash_one(());
        match (random % 100, random / 100 % 20) {
            (percent, _) if percent >= self.options.fail => {}
            (_, 0) => pending().await,
            _ => return Err("the storage is busy".into()),
        }
        Ok(self.clone().pool.spawn(move || perform(&self, command))?.await??)
    }

    fn read(&self, Read(job): Read) -> io::Result<Arc<[u8]>> {
        let (mut file, mut block) = (File::open(&self.options.file)?, Vec::new());
        let size = file.metadata()?.len().div_ceil(self.options.jobs);
        file.seek(SeekFrom::Start(job * size))?;
        file.take(size).read_to_end(&mut block)?;
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
}
