//! The queue and the command line, in one process.

use super::*;

#[test]
fn invalid_options_are_refused() {
    for wrong in [vec!["a"], vec!["a", "b", "c"], vec!["--jobs", "0", "a", "b"], vec!["--fail", "101", "a", "b"]] {
        assert!(parse(&mut Parser::from_args(wrong)).is_err());
    }
}

/// Options for this file, with a list that no other test has.
fn options(list: &str, jobs: u64, fail: u64) -> Options {
    let list = std::env::temp_dir().join(format!("procession-{}-{list}", std::process::id()));
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/job_queue/tests.rs");
    Options { file, list, jobs, fail, seed: 1, deadline: 3_600 }
}

#[test]
fn every_job_is_done_though_calls_fail() {
    let options = options("all", 300, 10);
    let report = run(&options, |_| Ok(())).unwrap();
    assert!(report.done == 300, "{report}");
    let file = std::fs::read(&options.file).unwrap();
    let begin = |job: u64| (file.len() as u64 * job / options.jobs) as usize;
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = |job: u64| file[begin(job)..begin(job + 1)].iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let line = |job: u64| format!("{:016x}\n", hash(job));
    assert_eq!(std::fs::read_to_string(&options.list).unwrap(), (0..options.jobs).map(line).collect::<String>());
    std::fs::remove_file(options.list).unwrap();
}

#[test]
fn an_interruption_reports_the_jobs_that_are_not_done() {
    // No call works, so no job can end before.
    let options = options("interrupted", 100, 100);
    let report = run(&options, |queue| {
        queue.cancel("interrupted")?;
        Ok(())
    })
    .unwrap();
    assert!(report.stopped.is_some() && report.done == 0, "{report}");
    assert_eq!(report.to_string(), "0 done, 0 failed, 100 not done; stopped: interrupted");
    std::fs::remove_file(options.list).unwrap();
}
