//! G. Scenarios. Statements 64 and 65 are the example `health_check`.

use procession::task::{Retention, Status, TaskOptions};

use crate::helpers::*;
use crate::tools::*;

#[test]
fn three_long_tasks_and_a_stop() {
    let tasks = tasks();
    let long = |_| {
        tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |cancel| cancel.sleep(HOUR)).unwrap()
    };
    let three: Vec<_> = (0..3).map(long).collect();
    until("all run", || tasks.stats().running == 3);
    tasks.stop();
    for task in &three {
        assert!(task.status().is_finished());
        assert_eq!(task.status().to_string(), "Stopped");
        assert!(tasks.info(task.id()).unwrap().to_string().contains("Stopped"));
    }
    tasks.stop_and_join(LIMIT).unwrap();
}

#[test]
fn a_task_that_is_cancelled_at_once_says_so() {
    let (manual, tasks) = manual();
    let task = tasks.submit(|cancel| cancel.sleep(SECOND)).unwrap();
    tasks.cancel(task.id()).unwrap();
    manual.advance(100 * MILLI);
    assert_eq!(task.status(), Status::Cancelled);
    assert_eq!(task.to_string(), format!("task {}: Cancelled, output: none, error: cancelled", task.id()));
    assert!(tasks.info(task.id()).unwrap().to_string().contains("Cancelled"));
}
