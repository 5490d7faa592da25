//! Tests of the checks with a manual clock.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use lexopt::Parser;
use procession::clock::ManualClock;
use procession::task::TaskScheduler;

use crate::checks::{Check, Summary, run};
use crate::service::Service;
use crate::{Options, exit_code};

const LIMIT: Duration = Duration::from_secs(2);
const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A service, a folder, and a scheduler with a manual clock.
struct Bench {
    service: Service,
    folder: PathBuf,
    manual: ManualClock,
    tasks: TaskScheduler,
}

impl Bench {
    fn new(name: &str, healthy: bool) -> Bench {
        let folder = std::env::temp_dir().join(format!("procession-health-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let manual = ManualClock::new();
        let tasks = TaskScheduler::builder().clock(manual.clock()).build();
        Bench { service: Service::start(healthy).unwrap(), folder, manual, tasks }
    }

    /// Runs the checks, each within this limit. Meanwhile, `meanwhile` receives the result of each check.
    fn run(&self, limit: Duration, meanwhile: impl FnOnce(&Bench, mpsc::Receiver<String>)) -> Summary {
        let (sender, receiver) = mpsc::channel();
        let checks = Check::all(self.service.address(), &self.folder);
        std::thread::scope(|scope| {
            let runs = scope.spawn(move || {
                run(&self.tasks, checks, limit, |finding| sender.send(finding.to_string()).unwrap()).unwrap()
            });
            meanwhile(self, receiver);
            runs.join().unwrap()
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Moves the clock in small steps until there is a line.
fn next(bench: &Bench, lines: &mpsc::Receiver<String>) -> String {
    loop {
        match lines.try_recv() {
            Ok(line) => return line,
            Err(mpsc::TryRecvError::Empty) => bench.manual.advance(MILLI),
            Err(mpsc::TryRecvError::Disconnected) => panic!("there is no other line"),
        }
        std::thread::yield_now();
    }
}

fn is_well(summary: &Summary) -> bool {
    format!("{:?}", exit_code(summary, false)) == format!("{:?}", std::process::ExitCode::SUCCESS)
}

#[test]
fn a_critical_check_that_fails_cancels_those_that_are_pending() {
    let bench = Bench::new("critical", false);
    let began = bench.manual.now();
    // The clock runs faster than the service answers, and may be far ahead of it.
    let summary = bench.run(Duration::MAX, |bench, lines| {
        let mut first = [lines.recv().unwrap(), lines.recv().unwrap()];
        first.sort();
        assert_eq!(first, ["disk       passed     written and read", "web        passed     answers"]);
        assert_eq!(next(bench, &lines), "database   FAILED     down for maintenance");
        let mut rest: Vec<_> = lines.iter().collect();
        rest.sort();
        let why = "Cancelled  the database check did not pass";
        assert_eq!(rest, [format!("backup     {why}"), format!("mirror     {why}")]);
    });
    assert_eq!(summary.to_string(), "2 passed, 1 failed, 2 cancelled, 0 timed out");
    assert!(!is_well(&summary));
    assert!(bench.manual.now() - began >= 150 * MILLI, "it was asked three times");
    bench.tasks.stop_and_join(HOUR).unwrap();
}

#[test]
fn what_takes_too_long_is_timed_out() {
    let bench = Bench::new("slow", true);
    let summary = bench.run(LIMIT, |bench, lines| {
        (0..3).for_each(|_| assert!(lines.recv().unwrap().contains("passed")));
        // The limit of a check starts with the check, so both must have begun.
        while bench.tasks.stats().running < 2 {
            std::thread::yield_now();
        }
        bench.manual.advance(LIMIT);
        assert!(lines.iter().all(|line| line.ends_with("TimedOut   timed out")));
    });
    assert_eq!(summary.to_string(), "3 passed, 0 failed, 0 cancelled, 2 timed out");
    assert!(!is_well(&summary));
}

#[test]
fn a_stop_in_the_midst_counts_what_is_pending_as_stopped() {
    let bench = Bench::new("stopped", true);
    let summary = bench.run(LIMIT, |bench, lines| {
        (0..3).for_each(|_| assert!(lines.recv().unwrap().contains("passed")));
        bench.tasks.stop();
        assert!(lines.iter().all(|line| line.ends_with("Stopped    shutdown")));
    });
    assert_eq!(summary.to_string(), "3 passed, 0 failed, 0 cancelled, 0 timed out, 2 stopped");
    bench.tasks.stop_and_join(HOUR).unwrap();
    let before_all = bench.run(LIMIT, |_, lines| assert_eq!(lines.iter().count(), 0));
    assert_eq!(before_all.stopped, 5);
}

#[test]
fn a_check_that_panics_has_failed_and_all_that_pass_are_well() {
    let bench = Bench::new("panic", true);
    let tasks = &bench.tasks;
    let check = |job: fn() -> String| Check { name: "odd", critical: false, job: Box::new(move |_| Ok(job())) };
    let well = run(tasks, vec![check(|| String::from("fine"))], LIMIT, |_| ()).unwrap();
    assert_eq!((well.to_string(), is_well(&well)), ("1 passed, 0 failed, 0 cancelled, 0 timed out".into(), true));
    let mut line = String::new();
    let odd = run(tasks, vec![check(|| panic!("odd"))], LIMIT, |finding| line = finding.to_string()).unwrap();
    assert_eq!((odd.failed, line.as_str()), (1, "odd        FAILED     panicked: odd"));
}

#[test]
fn options_are_read_or_explained() {
    let parse = |text: &str| Options::parse(&mut Parser::from_args(text.split_whitespace()));
    assert_eq!(parse("").unwrap(), Some(Options { healthy: false, limit: LIMIT }));
    assert_eq!(parse("--healthy -h").unwrap(), None);
    let limit = Duration::from_secs(60);
    assert_eq!(parse("--limit 60 --healthy").unwrap(), Some(Options { healthy: true, limit }));
    for (bad, part) in [("--limit", "needs a number"), ("--limit 0", "\"0\""), ("--limit x", "\"x\""), ("-x", "'-x'")] {
        assert!(parse(bad).unwrap_err().to_string().contains(part), "{bad}");
    }
}
