//! When a recording is saved, and what happens if that fails.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::Watchdog;
use procession::recording::{Recorder, Recording, SaveCause, SaveError, StepEnd};
use procession::sync::Latch;
use procession::{Event, Events, InitResult, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Tag};

use crate::log;
use crate::panics::quiet_panics;
use crate::wait::{Mutex, wait};
use crate::walker::{Op, Saved, Walker, opened, replayer};

/// A folder of its own for a test. It is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Folder(std::env::temp_dir().join(format!("procession-saving-{}-{number}", std::process::id())))
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_folder(folder: &Folder) -> Recorder {
    Recorder::new(&folder.0).version("walker 1").process::<Walker>()
}

#[test]
fn a_process_that_fails_or_panics_leaves_a_file() {
    quiet_panics();
    for (op, cause) in [(Op::Fail, SaveCause::Failed), (Op::Panic, SaveCause::Panicked)] {
        let folder = Folder::new();
        let runtime = Runtime::builder().workers(1).recorder(in_folder(&folder)).start().unwrap();
        let walker = runtime.spawn_with(Walker::new(), SpawnOptions::new().name("first")).unwrap();
        runtime.send(walker.address(), Op::Look).unwrap();
        runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
        assert!(!folder.0.exists(), "nothing is written before that");
        runtime.send(walker.address(), op).unwrap();
        assert!(!wait(&walker).is_done());
        let files = folder.files();
        assert_eq!(files.len(), 1, "it is there before the exit is known");
        let recording = Recording::open(&files[0]).unwrap();
        assert_eq!((recording.cause(), recording.pid()), (Some(cause), walker.pid()));
        assert_eq!((recording.name(), recording.version()), (Some("first"), "walker 1"));
        assert_eq!(recording.process_type(), std::any::type_name::<Walker>());
        let last = recording.replay(&replayer(), Walker::new).unwrap().run().unwrap().unwrap();
        assert!(matches!(last.end, StepEnd::Failed(_) | StepEnd::Panicked(_)), "{last}");
    }
}

/// Fails in its `start`.
struct BadStart;

impl Process for BadStart {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> InitResult {
        let _ = out.now();
        Err("on purpose".into())
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_start_that_fails_is_recorded() {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let saves = saved.clone();
    let recorder = Recorder::to(move |bytes| saves.lock().unwrap().push(bytes)).process::<BadStart>();
    let runtime = Runtime::builder().workers(1).recorder(recorder.clone()).start().unwrap();
    assert!(!wait(&runtime.spawn(BadStart).unwrap()).is_done());
    let bytes = saved.lock().unwrap().remove(0);
    let step = opened(&bytes).replay(&recorder, || BadStart).unwrap().run().unwrap().unwrap();
    assert_eq!((step.number, step.end), (0, StepEnd::Failed("on purpose".into())));
}

#[test]
fn a_living_process_is_saved_when_it_is_asked_for() {
    let folder = Folder::new();
    let runtime = Runtime::builder().workers(1).recorder(in_folder(&folder)).start().unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    runtime.send(walker.address(), Op::Look).unwrap();
    runtime.wait_idle_timeout(Duration::from_secs(60)).unwrap();
    let file = runtime.save_recording(&walker).unwrap().unwrap();
    let recording = Recording::open(file).unwrap();
    assert_eq!(recording.cause(), Some(SaveCause::Asked));
    let mut replay = recording.replay(&replayer(), Walker::new).unwrap();
    assert_eq!(replay.run().unwrap().unwrap().end, StepEnd::Idle);
    runtime.send(walker.address(), Op::Done).unwrap();
    wait(&walker);
    assert!(matches!(runtime.save_recording(walker.pid()), Err(SaveError::NotRecorded(_))));
    assert!(matches!(runtime.save_recording("nobody"), Err(SaveError::NoSuchProcess(_))));
    let runtime = Runtime::builder().workers(1).start().unwrap();
    assert!(matches!(runtime.save_recording(walker.pid()), Err(SaveError::NoRecorder)));
}

#[test]
fn files_of_earlier_runs_are_kept() {
    let folder = Folder::new();
    for run in 1..=3 {
        let recorder = in_folder(&folder);
        let runtime = Runtime::builder().workers(1).node(1).recorder(recorder).start().unwrap();
        let walker = runtime.spawn(Walker::new()).unwrap();
        runtime.save_recording(&walker).unwrap();
        assert_eq!(folder.files().len(), run);
    }
}

/// Stays in its second message until it may go.
struct Held {
    begun: Latch<()>,
    go: Latch<()>,
}

impl Process for Held {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(2) = event {
                let _ = out.now();
                let _ = self.begun.set(());
                wait(&self.go);
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_step_that_is_reported_stuck_is_saved_with_what_it_has_read() {
    let clock = ManualClock::new();
    let stuck = Latch::new();
    let (saves, bytes) = (stuck.clone(), Arc::new(Mutex::new(Vec::new())));
    let to = bytes.clone();
    let recorder = Recorder::to(move |recording| to.lock().unwrap().push(recording))
        .process::<Held>()
        .on_save(move |report| _ = saves.set(report.cause));
    let watchdog = Watchdog::after(Duration::from_millis(100));
    let builder = Runtime::builder().workers(1).clock(clock.clock()).watchdog(watchdog);
    let runtime = builder.recorder(recorder.clone()).start().unwrap();
    let (begun, go) = (Latch::new(), Latch::new());
    let held = runtime.spawn(Held { begun: begun.clone(), go: go.clone() }).unwrap();
    runtime.send(held.address(), 1).unwrap();
    runtime.send(held.address(), 2).unwrap();
    wait(&begun);
    clock.advance(Duration::from_millis(300));
    assert_eq!(wait(&stuck), SaveCause::Stuck);
    go.set(()).unwrap();
    wait(&held);
    let recording = opened(&bytes.lock().unwrap().remove(0));
    assert_eq!(recording.cause(), Some(SaveCause::Stuck));
    let free = Latch::new();
    free.set(()).unwrap();
    let last = recording.replay(&recorder, || Held { begun: Latch::new(), go: free }).unwrap().run();
    let last = last.unwrap().unwrap();
    assert!(last.was_unfinished && last.read.ends_with(&["a message", "the time"]), "{last}");
}

/// The errors in the log of this program.
fn logged() -> Arc<Mutex<Vec<String>>> {
    static LOGGED: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();
    let logged = LOGGED.get_or_init(|| {
        let records = Arc::new(Mutex::new(Vec::new()));
        let log = log::Recorder { level: tracing::Level::ERROR, records: records.clone(), check: |_| () };
        tracing::subscriber::set_global_default(log).unwrap();
        records
    });
    logged.clone()
}

/// A command whose answers have a type without a codec.
struct Unknown {
    answer: Option<Tag<[u8; 3]>>,
}

impl Process for Unknown {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Completed(done) = event {
                assert_eq!(done.take(self.answer).unwrap().unwrap(), [1, 2, 3]);
                return Err("at last".into());
            }
        }
        self.answer = Some(out.blocking(|| [1, 2, 3]));
        Ok(Step::Wait)
    }
}

#[test]
fn a_save_that_fails_harms_no_process_and_is_told() {
    quiet_panics();
    let (told, logged) = (Arc::new(Mutex::new(Vec::new())), logged());
    let hears = told.clone();
    let tell = move |recorder: Recorder| {
        let hears = hears.clone();
        recorder.on_save(move |report| {
            hears.lock().unwrap().push(report.to_string());
            panic!("in the hook");
        })
    };
    let file = Folder::new();
    std::fs::write(&file.0, "no folder").unwrap();
    let recorders = [
        (tell(in_folder(&file)), "cannot be written"),
        (tell(Recorder::to(|_| panic!("no room")).process::<Walker>()), "the function that takes recordings panicked"),
        (tell(Saved::default().recorder().most_files(0)), "0 recordings are saved, and no more are allowed"),
    ];
    for (recorder, text) in recorders {
        let runtime = Runtime::builder().workers(1).recorder(recorder).start().unwrap();
        let walker = runtime.spawn(Walker::new()).unwrap();
        let error = runtime.save_recording(&walker).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        runtime.send(walker.address(), Op::Fail).unwrap();
        assert!(wait(&walker).without_output().to_string().starts_with("failed: failed with"));
        assert_eq!(runtime.stats().ended.failed, 1);
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told.len(), 2);
        assert!(told[1].contains(", because a step failed: not saved: ") && told[1].contains(text), "{told:?}");
        let of_this = |line: &&String| line.contains("=recording not saved") && line.contains(text);
        let lines: Vec<_> = logged.lock().unwrap().iter().filter(of_this).cloned().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains(" cause=a step failed ") && lines[1].contains("Walker"), "{lines:?}");
    }
    // It is none of the most.
    let runtime = Runtime::builder().workers(1).recorder(in_folder(&file).most_files(1)).start().unwrap();
    let walker = runtime.spawn(Walker::new()).unwrap();
    (0..3).for_each(|_| assert!(matches!(runtime.save_recording(&walker), Err(SaveError::Io { .. }))));
    std::fs::remove_file(&file.0).unwrap();
    assert!(runtime.save_recording(&walker).unwrap().is_some());
    assert!(matches!(runtime.save_recording(&walker), Err(SaveError::TooMany { limit: 1 })));

    let runtime = Runtime::builder().workers(1);
    let runtime = runtime.recorder(tell(Saved::default().recorder().process::<Unknown>())).start().unwrap();
    assert_eq!(wait(&runtime.spawn(Unknown { answer: None }).unwrap()).without_output().to_string(), "failed: at last");
    let told = told.lock().unwrap();
    assert!(told[0].contains("the answer to command 1 has a type without a codec: see `Recorder::answer`"), "{told:?}");
}
