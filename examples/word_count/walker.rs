//! The walker finds the files. It spawns a process for each of them, but only a limited number at a time.

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use procession::{
    Address, Completion, Event, Events, Process, Rejected, Reply, SpawnError, Step, StepOutput, StepResult, Tag,
};
use walkdir::WalkDir;

use super::console::Console;
use super::file::{FileEnd, FileMessage, FileProcess, Found};
use super::tally::TallyMessage;

/// The number of paths that one job examines.
const LISTING: usize = 1024;

/// About how many files the walk is ahead of the counting, so that the progress bar has a total.
const AHEAD: usize = 16 * LISTING;

pub(super) enum WalkerMessage {
    /// Begin the walk. The reply is sent when every file that was found has been counted or reported as failed.
    Walk(Reply<()>),
}

pub(super) struct Walker {
    tally: Address<TallyMessage>,
    console: Arc<Console>,
    /// The most files that may be open at a time.
    window: usize,
    asked: Option<Reply<()>>,
    /// The rest of the walk. It is `None` while a job has it, and when the walk is finished.
    walk: Option<Walk>,
    walking: Option<Tag<Listing>>,
    found: VecDeque<Found>,
    counting: Vec<(Tag<FileEnd>, PathBuf)>,
    complaining: Vec<Tag<()>>,
    stopping: bool,
}

impl Walker {
    pub(super) fn new(
        paths: Vec<PathBuf>,
        window: usize,
        tally: Address<TallyMessage>,
        console: Arc<Console>,
    ) -> Walker {
        Walker {
            tally,
            console,
            window,
            asked: None,
            walk: Some(Walk { paths: paths.into(), tree: None }),
            walking: None,
            found: VecDeque::new(),
            counting: Vec::new(),
            complaining: Vec::new(),
            stopping: false,
        }
    }

    fn completed(&mut self, done: &Completion, out: &mut StepOutput) {
        if let Some(listing) = self.walking.and_then(|tag| done.take(tag)) {
            self.walking = None;
            match listing {
                Ok(listing) => self.listed(listing, out),
                Err(error) => self.complain(PathBuf::from("the walk"), error, out),
            }
        } else if let Some(place) = self.counting.iter().position(|(tag, _)| done.is(*tag)) {
            let (tag, path) = self.counting.swap_remove(place);
            match done.take(tag) {
                Some(Ok(FileEnd::Whole)) => out.send(self.tally, TallyMessage::Counted),
                Some(Ok(FileEnd::Failed(why))) => self.complain(path, why, out),
                // The file's process has ended without an answer.
                Some(Err(error)) if !self.stopping => self.complain(path, error, out),
                _ => {}
            }
        } else {
            self.complaining.retain(|tag| !done.is(*tag));
        }
    }

    fn listed(&mut self, listing: Listing, out: &mut StepOutput) {
        self.walk = listing.rest;
        let (files, bytes) = (listing.found.len() as u64, listing.found.iter().map(|found| found.size).sum());
        out.send(self.tally, TallyMessage::Found { files, bytes });
        self.found.extend(listing.found);
        for (path, why) in listing.failed {
            self.complain(path, why, out);
        }
    }

    fn complain(&mut self, path: PathBuf, why: impl Display, out: &mut StepOutput) {
        out.send(self.tally, TallyMessage::Failed);
        let (console, why) = (self.console.clone(), why.to_string());
        self.complaining.push(out.blocking(move || console.complain(&path, &why)));
    }

    /// Continues with the walk and with the files, as far as there is room.
    fn go_on(&mut self, out: &mut StepOutput) {
        while self.counting.len() + self.complaining.len() < self.window
            && let Some(found) = self.found.pop_front()
        {
            let path = found.path.clone();
            match out.spawn(FileProcess::new(found, self.tally)) {
                Ok(file) => self.counting.push((out.ask(file, FileMessage::Count, Duration::MAX), path)),
                Err(refused) => self.refused(refused, path, out),
            }
        }
        if self.found.len() < AHEAD
            && self.complaining.len() < self.window
            && let Some(walk) = self.walk.take()
        {
            self.walking = Some(out.blocking(move || walk.list()));
        }
    }

    /// Begins nothing new. The processes of the files are asked to stop, too, and soon answer. A job that is listing
    /// a part of the walk is not waited for.
    fn stop(&mut self) {
        self.stopping = true;
        (self.walk, self.walking) = (None, None);
        self.found.clear();
    }

    fn refused(&mut self, refused: Rejected<FileProcess, SpawnError>, path: PathBuf, out: &mut StepOutput) {
        match refused.reason() {
            SpawnError::ShuttingDown => self.stop(),
            why => self.complain(path, why, out),
        }
    }
}

impl Process for Walker {
    type Message = WalkerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<WalkerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(WalkerMessage::Walk(reply)) => self.asked = Some(reply),
                Event::Completed(done) => self.completed(&done, out),
                Event::Cancel(_) => self.stop(),
                _ => {}
            }
        }
        if self.asked.is_none() && !self.stopping {
            return Ok(Step::Idle);
        }
        self.go_on(out);
        let is_walking = self.walk.is_some() || self.walking.is_some() || !self.found.is_empty();
        if is_walking || !self.counting.is_empty() || !self.complaining.is_empty() {
            return Ok(Step::Wait);
        }
        if let Some(reply) = self.asked.take() {
            out.reply(reply, ());
        }
        Ok(Step::Done(()))
    }
}

/// A walk through paths and the trees below them.
pub(super) struct Walk {
    paths: VecDeque<PathBuf>,
    tree: Option<walkdir::IntoIter>,
}

/// The result of one part of a walk.
pub(super) struct Listing {
    found: Vec<Found>,
    failed: Vec<(PathBuf, String)>,
    rest: Option<Walk>,
}

impl Walk {
    /// Walks one part. It blocks, so it is called only in a job.
    fn list(mut self) -> Listing {
        let mut listing = Listing { found: Vec::new(), failed: Vec::new(), rest: None };
        for _ in 0..LISTING {
            match self.tree.as_mut().and_then(Iterator::next) {
                Some(Ok(entry)) if entry.file_type().is_file() => {
                    let size = entry.metadata().map_or(0, |metadata| metadata.len());
                    listing.found.push(Found { path: entry.into_path(), size });
                }
                // Either a directory, whose entries come next. Or a symbolic link, a socket, a pipe or a device,
                // which are no files.
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    let path = error.path().map_or_else(PathBuf::new, PathBuf::from);
                    let why = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                    listing.failed.push((path, why));
                }
                None => match self.paths.pop_front() {
                    Some(path) => self.enter(path, &mut listing),
                    None => return listing,
                },
            }
        }
        listing.rest = Some(self);
        listing
    }

    /// A path from the command line is taken as it is: a link is followed, and a pipe is read.
    fn enter(&mut self, path: PathBuf, listing: &mut Listing) {
        self.tree = None;
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.tree = Some(WalkDir::new(path).into_iter()),
            Ok(metadata) => listing.found.push(Found { path, size: metadata.len() }),
            Err(error) => listing.failed.push((path, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;
    use std::env::temp_dir;
    use std::sync::atomic::{AtomicU32, Ordering};

    use procession::testing::{Asked, Driver, Status, question};
    use procession::{CommandError, Pid};

    use super::*;

    const WINDOW: usize = 4;

    /// A directory with files in it, which is removed at the end of the test.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[&str]) -> Tree {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let root = temp_dir().join(format!("word_count_tree_{}_{number}", std::process::id()));
            for file in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "four").unwrap();
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A walker that was asked to walk, and waits for the first part of the list.
    fn walker(paths: &[&PathBuf]) -> (Driver<Walker>, Asked<()>) {
        let tally: Pid = "<0.7.1>".parse().unwrap();
        let paths = paths.iter().map(|path| path.to_path_buf()).collect();
        let console = Arc::new(Console::hidden());
        let mut walker = Driver::new(Walker::new(paths, WINDOW, tally.typed(), console));
        assert_eq!(walker.run(), Status::Idle);
        assert!(walker.outstanding().is_empty(), "it does nothing before somebody asks");
        let (reply, asked) = question();
        walker.message(WalkerMessage::Walk(reply));
        assert_eq!(walker.run(), Status::Blocked);
        (walker, asked)
    }

    /// The requests that the walker has sent to files since the last call, and its messages to the tally.
    fn sent(walker: &mut Driver<Walker>) -> (Vec<Reply<FileEnd>>, Vec<String>) {
        let (mut asked, mut told) = (Vec::new(), Vec::new());
        loop {
            if let Ok((_, FileMessage::Count(reply))) = walker.sent() {
                assert_eq!(walker.spawned().unwrap().1, type_name::<FileProcess>());
                asked.push(reply);
            } else if let Ok((_, message)) = walker.sent::<TallyMessage>() {
                told.push(match message {
                    TallyMessage::Found { files, bytes } => format!("found {files} of {bytes}"),
                    TallyMessage::Counted => String::from("counted"),
                    TallyMessage::Failed => String::from("failed"),
                    _ => String::from("?"),
                });
            } else {
                return (asked, told);
            }
        }
    }

    #[test]
    fn each_file_has_a_process_and_no_more_than_the_window_at_a_time() {
        let tree = Tree::new(&["a", ".hidden", "deep/er/b", "deep/c", "d", "e", "f"]);
        let (mut walker, over) = walker(&[&tree.0]);
        walker.run_blocking();
        walker.run();
        let (mut asked, told) = sent(&mut walker);
        assert_eq!((asked.len(), told), (WINDOW, vec![String::from("found 7 of 28")]));
        for _ in 0..7 {
            asked.pop().unwrap().send(FileEnd::Whole);
            walker.run();
            let (more, told) = sent(&mut walker);
            assert_eq!(told[0], "counted");
            asked.extend(more);
            assert!(asked.len() <= WINDOW);
        }
        assert_eq!(walker.status(), Status::Ended);
        over.answer().unwrap().unwrap();
    }

    #[test]
    fn what_fails_is_told_and_complained_of_and_the_rest_goes_on() {
        let tree = Tree::new(&["a", "b"]);
        let (mut walker, over) = walker(&[&tree.0.join("missing"), &tree.0]);
        walker.run_blocking();
        assert_eq!(walker.run(), Status::Blocked);
        let (asked, told) = sent(&mut walker);
        assert_eq!(told, ["found 2 of 8", "failed"]);
        let mut asked = asked.into_iter();
        asked.next().unwrap().send(FileEnd::Failed(String::from("no luck")));
        // As if the process had ended before it answered.
        drop(asked.next());
        walker.run();
        assert_eq!(sent(&mut walker).1, ["failed", "failed"]);
        assert_eq!(walker.outstanding().len(), 3, "complaints, before which it is not over");
        while walker.answer_blocking(Ok(())) {}
        assert!(over.answer().is_none());
        assert_eq!(walker.run(), Status::Ended);
        over.answer().unwrap().unwrap();
    }

    #[test]
    fn nothing_found_is_over_at_once_and_a_walk_that_fails_is_a_failure() {
        let tree = Tree::new(&["file"]);
        fs::remove_file(tree.0.join("file")).unwrap();
        let (mut empty, over) = walker(&[&tree.0]);
        empty.run_blocking();
        assert_eq!(empty.run(), Status::Ended);
        assert_eq!(sent(&mut empty).1, ["found 0 of 0"]);
        over.answer().unwrap().unwrap();

        let (mut broken, over) = walker(&[&tree.0]);
        broken.answer_blocking::<Listing>(Err(CommandError::Dropped));
        broken.run();
        broken.answer_blocking(Ok(()));
        assert_eq!(broken.run(), Status::Ended);
        assert_eq!(sent(&mut broken).1, ["failed"]);
        over.answer().unwrap().unwrap();
    }

    #[test]
    fn asked_to_stop_it_begins_nothing_and_waits_for_the_files_at_work() {
        let tree = Tree::new(&["a", "b", "c", "d", "e", "f"]);
        let (mut walker, over) = walker(&[&tree.0]);
        walker.run_blocking();
        walker.run();
        let (mut asked, _) = sent(&mut walker);
        walker.cancel("enough");
        assert_eq!(walker.run(), Status::Blocked);
        asked.pop().unwrap().send(FileEnd::Whole);
        for reply in asked {
            reply.send(FileEnd::Stopped);
        }
        assert_eq!(walker.run(), Status::Ended);
        assert_eq!(sent(&mut walker).1, ["counted"]);
        over.answer().unwrap().unwrap();
    }

    #[test]
    fn asked_to_stop_it_does_not_wait_for_the_walk() {
        let (mut walker, over) = walker(&[&temp_dir()]);
        walker.cancel("enough");
        assert_eq!(walker.run(), Status::Ended);
        over.answer().unwrap().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_tree_are_not_followed_and_one_that_is_asked_for_is() {
        use std::os::unix::fs::symlink;
        let tree = Tree::new(&["real/file"]);
        let (file, directory) = (tree.0.join("to file"), tree.0.join("to directory"));
        symlink("real/file", &file).unwrap();
        symlink("real", &directory).unwrap();
        symlink(".", tree.0.join("real/loop")).unwrap();
        symlink("nowhere", tree.0.join("dangling")).unwrap();
        for (paths, expected) in [(vec![&tree.0], "found 1 of 4"), (vec![&file, &directory], "found 2 of 8")] {
            let (mut walker, _over) = walker(&paths);
            walker.run_blocking();
            walker.run();
            assert_eq!(sent(&mut walker).1, [expected]);
        }
    }
}
