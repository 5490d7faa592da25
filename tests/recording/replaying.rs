//! Recorded processes are stepped again, with the same results.

use procession::recording::StepEnd;

use crate::walker::{Op, Saved, Walker, opened, replayer, walk};

#[test]
fn a_process_is_replayed_from_its_start_to_its_end() {
    let saved = Saved::default();
    walk(saved.recorder().save_at_end(), [Op::Add(1), Op::Look, Op::Timer, Op::Name(0), Op::Look, Op::Spawn]);
    let all = saved.take();
    let recording = all.iter().map(|bytes| opened(bytes)).find(|one| one.steps() > 1 && one.pid().slot() == 0).unwrap();
    println!("{recording}");
    let mut replay = recording.replay(&replayer(), Walker::new).unwrap();
    let mut memory = Vec::new();
    let mut last = None;
    while let Some(step) = replay.step().unwrap() {
        println!("{step}");
        memory.push(replay.process().unwrap().memory);
        last = Some(step.end);
    }
    assert_eq!(last, Some(StepEnd::Done));
    memory.dedup();
    assert!(memory.len() > 1, "the state is seen after each step");
}
