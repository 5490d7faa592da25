//! The process of one file. It reads the file in blocks, has them counted, and sends the counts to the tally.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use procession::{Address, CommandError, Completion, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::blocks::{Block, Blocks};
use super::counts::Counts;
use super::tally::TallyMessage;

/// The most blocks of one file that may be between the reader and the tally. The rest of a large file stays on the
/// disk, which bounds the memory. More blocks would only queue at the tally.
const BLOCKS_IN_HAND: usize = 3;

/// A file to be counted, and its size when it was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

pub(super) enum FileMessage {
    /// Count the file. The reply has the outcome, and is sent when the tally has all counts.
    Count(Reply<FileEnd>),
}

#[derive(Debug, PartialEq)]
pub(super) enum FileEnd {
    Whole,
    /// The file could not be read, or not to its end. The text is the reason.
    Failed(String),
    /// The process was asked to stop before the end.
    Stopped,
}

pub(super) struct FileProcess {
    tally: Address<TallyMessage>,
    asked: Option<Reply<FileEnd>>,
    /// The reader. Its owner may read: this process, or the one job that has it.
    reader: Option<Reader>,
    reading: Option<Tag<io::Result<Piece>>>,
    counting: Vec<Tag<Box<Counts>>>,
    merging: Vec<Tag<()>>,
    /// The reason why no more is read.
    end: Option<FileEnd>,
}

/// A file that is not yet open, or is open.
pub(super) enum Reader {
    New(Found),
    Open(Blocks<File>),
}

/// The outcome of a read.
pub(super) enum Piece {
    /// A block, and the file, which has more blocks.
    Next(Block, Reader),
    /// The counts of the last block. No read can go on meanwhile, so the job that read the block also counts it. Most
    /// files are small, and need only this one job.
    Last(Box<Counts>),
}

impl FileProcess {
    pub(super) fn new(found: Found, tally: Address<TallyMessage>) -> FileProcess {
        FileProcess {
            tally,
            asked: None,
            reader: Some(Reader::New(found)),
            reading: None,
            counting: Vec::new(),
            merging: Vec::new(),
            end: None,
        }
    }

    fn completed(&mut self, done: &Completion, out: &mut StepOutput) {
        if let Some(piece) = self.reading.and_then(|tag| done.take(tag)) {
            self.reading = None;
            match piece {
                Ok(Ok(Piece::Next(block, reader))) => {
                    self.reader = Some(reader);
                    self.counting.push(out.blocking(move || Box::new(Counts::of(&block))));
                }
                Ok(Ok(Piece::Last(counts))) => {
                    self.merge(counts, out);
                    self.end.get_or_insert(FileEnd::Whole);
                }
                Ok(Err(error)) => self.broke_off(FileEnd::Failed(error.to_string())),
                Err(error) => self.refused(error),
            }
        } else if let Some(place) = self.counting.iter().position(|tag| done.is(*tag)) {
            match done.take(self.counting.swap_remove(place)) {
                Some(Ok(counts)) => self.merge(counts, out),
                Some(Err(error)) => self.refused(error),
                None => {}
            }
        } else if let Some(place) = self.merging.iter().position(|tag| done.is(*tag))
            && let Some(Err(error)) = done.take(self.merging.swap_remove(place))
        {
            self.refused(error);
        }
    }

    /// Sends counts to the tally with `ask`, so that the file waits when the tally cannot keep up.
    fn merge(&mut self, counts: Box<Counts>, out: &mut StepOutput) {
        self.merging.push(out.ask(self.tally, |reply| TallyMessage::Add(counts, reply), Duration::MAX));
    }

    /// Handles a command that could not be performed. Either the runtime shuts down, or there is a bug, such as a
    /// panic in a job.
    fn refused(&mut self, error: CommandError) {
        self.broke_off(match error {
            CommandError::Cancelled(_) | CommandError::Ended(_) => FileEnd::Stopped,
            other => FileEnd::Failed(other.to_string()),
        });
    }

    /// Ends the file as incomplete, even if all of it was read, because some counts are lost.
    fn broke_off(&mut self, end: FileEnd) {
        if !matches!(self.end, Some(FileEnd::Failed(_))) {
            self.end = Some(end);
        }
    }

    fn in_hand(&self) -> usize {
        self.counting.len() + self.merging.len()
    }

    fn read_on(&mut self, out: &mut StepOutput) {
        if self.end.is_none()
            && self.in_hand() < BLOCKS_IN_HAND
            && let Some(reader) = self.reader.take()
        {
            self.reading = Some(out.blocking(move || reader.read()));
        }
    }
}

impl Process for FileProcess {
    type Message = FileMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<FileMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(FileMessage::Count(reply)) => self.asked = Some(reply),
                Event::Completed(done) => self.completed(&done, out),
                Event::Cancel(_) => drop(self.end.get_or_insert(FileEnd::Stopped)),
                _ => {}
            }
        }
        if self.asked.is_none() {
            return Ok(if self.end.is_none() { Step::Idle } else { Step::Done(()) });
        }
        self.read_on(out);
        // A read that still runs is not waited for. It may be a read of a pipe without a writer.
        if self.in_hand() == 0
            && let Some(end) = self.end.take()
            && let Some(reply) = self.asked.take()
        {
            out.reply(reply, end);
            return Ok(Step::Done(()));
        }
        Ok(Step::Wait)
    }
}

impl Reader {
    /// Reads a block. It blocks, so it is called only in a job.
    fn read(self) -> io::Result<Piece> {
        let mut blocks = match self {
            Reader::New(found) => Blocks::new(File::open(&found.path)?, found.size),
            Reader::Open(blocks) => blocks,
        };
        let (block, is_last) = blocks.next()?;
        Ok(match is_last {
            true => Piece::Last(Box::new(Counts::of(&block))),
            false => Piece::Next(block, Reader::Open(blocks)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use procession::Pid;
    use procession::testing::{Asked, Driver, Status, question};

    use super::super::blocks::LARGEST_BLOCK;
    use super::*;

    /// A file that is removed at the end of the test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(content: &[u8]) -> Temporary {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = temp_dir().join(format!("word_count_file_{}_{number}", std::process::id()));
            fs::write(&path, content).unwrap();
            Temporary(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// The process of this file, which was asked to count it.
    fn asked(path: &PathBuf) -> (Driver<FileProcess>, Asked<FileEnd>) {
        let found = Found { path: path.clone(), size: fs::metadata(path).map_or(0, |metadata| metadata.len()) };
        let tally: Pid = "<0.7.1>".parse().unwrap();
        let mut file = Driver::new(FileProcess::new(found, tally.typed()));
        assert_eq!(file.run(), Status::Idle);
        assert!(file.outstanding().is_empty(), "nothing is read before somebody asks");
        let (reply, asked) = question();
        file.message(FileMessage::Count(reply));
        assert_eq!(file.run(), Status::Blocked);
        (file, asked)
    }

    /// The counts that the process asks the tally to add.
    fn added(file: &mut Driver<FileProcess>) -> Option<(Box<Counts>, Reply<()>)> {
        match file.sent::<TallyMessage>() {
            Ok((_, TallyMessage::Add(counts, reply))) => Some((counts, reply)),
            _ => None,
        }
    }

    fn end(asked: &Asked<FileEnd>) -> FileEnd {
        asked.answer().unwrap().unwrap()
    }

    #[test]
    fn a_small_file_takes_one_job_and_is_whole_when_the_tally_has_it() {
        let temporary = Temporary::new(b"to be or not\nto be");
        let (mut file, asked) = asked(&temporary.0);
        assert!(file.run_blocking());
        assert_eq!(file.run(), Status::Blocked);
        assert!(asked.answer().is_none(), "the tally has not answered");
        let (counts, reply) = added(&mut file).unwrap();
        assert_eq!((counts.lines, counts.words, counts.bytes), (1, 6, 18));
        reply.send(());
        assert_eq!(file.run(), Status::Ended);
        assert_eq!(end(&asked), FileEnd::Whole);
    }

    #[test]
    fn a_large_file_is_read_on_while_blocks_are_counted_but_only_a_few() {
        let text = b"word ".repeat(LARGEST_BLOCK);
        let temporary = Temporary::new(&text);
        let (mut file, asked) = asked(&temporary.0);
        let (mut bytes, mut replies) = (0, Vec::new());
        while file.run() != Status::Ended {
            while file.run_blocking() {
                file.run();
            }
            assert!(file.outstanding().len() <= BLOCKS_IN_HAND, "the tally is slow, so reading waits");
            while let Some((counts, reply)) = added(&mut file) {
                bytes += counts.bytes;
                replies.push(reply);
            }
            if let Some(reply) = replies.pop() {
                reply.send(());
            }
        }
        assert_eq!(bytes, text.len() as u64);
        assert_eq!(end(&asked), FileEnd::Whole);
    }

    #[test]
    fn what_cannot_be_opened_or_read_fails_with_the_reason() {
        for (path, why) in [(temp_dir().join("no such file, surely"), "No such file"), (temp_dir(), "directory")] {
            let (mut file, asked) = asked(&path);
            file.run_blocking();
            assert_eq!(file.run(), Status::Ended);
            assert!(matches!(end(&asked), FileEnd::Failed(reason) if reason.contains(why)));
        }
    }

    #[test]
    fn a_job_that_comes_to_nothing_is_a_failure_and_no_silence() {
        let (mut file, asked) = asked(&temp_dir());
        file.answer_blocking::<io::Result<Piece>>(Err(CommandError::Dropped));
        assert_eq!(file.run(), Status::Ended);
        assert_eq!(end(&asked), FileEnd::Failed(CommandError::Dropped.to_string()));
    }

    #[test]
    fn asked_to_stop_it_delivers_what_is_counted_and_does_not_wait_for_a_read() {
        let temporary = Temporary::new(&b"word ".repeat(LARGEST_BLOCK));
        let (mut file, asked) = asked(&temporary.0);
        file.run_blocking();
        file.run();
        file.cancel("enough");
        assert_eq!(file.run(), Status::Blocked, "a block is being counted, and the next one read");
        assert_eq!(file.outstanding().len(), 2);
        file.run_blocking();
        assert_eq!(file.run(), Status::Blocked);
        added(&mut file).unwrap().1.send(());
        assert_eq!(file.run(), Status::Ended, "though the read goes on");
        assert_eq!(end(&asked), FileEnd::Stopped);
    }

    #[test]
    fn counts_that_the_tally_has_not_taken_are_a_failure_though_all_was_read() {
        let temporary = Temporary::new(b"word");
        let (mut file, asked) = asked(&temporary.0);
        file.run_blocking();
        file.run();
        drop(added(&mut file));
        assert_eq!(file.run(), Status::Ended);
        assert!(matches!(end(&asked), FileEnd::Failed(_)));
    }
}
