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
    Options { file, list, jobs, fail, deadline: 3_600 }
}

#[test]
fn every_job_is_done_though_calls_fail() {
    let options = options("all", 300, 10);
    let (_runtime, queue) = start(options.clone()).unwrap();
    let report = queue.join().unwrap().into_result().unwrap();
    assert!(report.done == 300, "{report}");
    let file = std::fs::read(&options.file).unwrap();
    let mut blocks = file.chunks(file.len().div_ceil(300));
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = |block: &[u8]| block.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let mut line = |_| format!("{:016x}\n", hash(blocks.next().unwrap_or_default()));
    assert_eq!(std::fs::read_to_string(&options.list).unwrap(), (0..300).map(&mut line).collect::<String>());
    assert!(blocks.next().is_none());
    std::fs::remove_file(options.list).unwrap();
}

#[test]
fn an_interruption_reports_the_jobs_that_are_not_done() {
    // No call works, so no job can end before.
    let options = options("interrupted", 100, 100);
    let (_runtime, queue) = start(options.clone()).unwrap();
    queue.process_ref().cancel("interrupted").unwrap();
    let report = queue.join().unwrap().into_result().unwrap();
    assert!(report.stopped.is_some() && report.done == 0, "{report}");
    assert_eq!(report.to_string(), "0 done, 0 failed, 100 not done; stopped: interrupted");
    std::fs::remove_file(options.list).unwrap();
}
