//! The file of a recording: cut off, damaged, of another format, version or type.

use procession::recording::{FORMAT, OpenError, Recording, ReplayError, StepEnd};
use procession::{Events, Process, Step, StepOutput, StepResult};

use crate::mutated::*;
use crate::walker::{Op, Walker, opened, replayer};

#[test]
fn a_file_that_is_cut_off_gives_all_whole_steps() {
    let bytes = recorded();
    assert_eq!(sealed(&bodies(&bytes)), bytes, "the test and the library have one format");
    let frames = frames(&bytes);
    let about = frames[0].0.end;
    for length in 0..bytes.len() {
        let cut = Recording::from_bytes(bytes[..length].to_vec());
        if length < about {
            assert!(matches!(cut, Err(OpenError::Cut { at }) if at == length), "{length}: {cut:?}");
            continue;
        }
        let cut = cut.unwrap_or_else(|error| panic!("{length}: {error}"));
        let whole = frames.iter().filter(|(frame, kind)| *kind == 2 && frame.end <= length).count();
        let end = frames.iter().map(|(frame, _)| frame.end).filter(|end| *end <= length).max();
        assert_eq!((cut.steps(), cut.cut()), (whole, end), "{length}");
        match steps(cut) {
            Ok(count) => assert_eq!(count, whole),
            Err(error) => assert_eq!((error, whole), (ReplayError::Empty, 0)),
        }
    }
    assert_eq!(opened(&bytes).cut(), None);
}

#[test]
fn each_changed_byte_is_found() {
    let bytes = recorded();
    for place in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[place] ^= change;
            let error = Recording::from_bytes(changed).expect_err("the change is found");
            match place {
                0..7 => assert!(matches!(error, OpenError::NotARecording), "{place}: {error}"),
                7 => assert!(matches!(error, OpenError::Format { known: FORMAT, .. }), "{error}"),
                _ => assert!(matches!(error, OpenError::Damaged { at, .. } if at <= place), "{place}: {error}"),
            }
        }
    }
    // Frames that are missing, twice there, or in another place.
    let all = frames(&bytes);
    let frame = |number: usize| &bytes[all[number].0.clone()];
    let others = [
        [&bytes[..all[2].0.start], &bytes[all[3].0.start..]].concat(),
        [&bytes[..all[2].0.end], frame(2), &bytes[all[3].0.start..]].concat(),
        [&bytes[..all[2].0.start], frame(3), frame(2), &bytes[all[4].0.start..]].concat(),
        [&bytes[..], &[0]].concat(),
    ];
    for other in others {
        assert!(matches!(Recording::from_bytes(other), Err(OpenError::Damaged { .. })));
    }
}

#[test]
fn frames_of_an_unknown_kind_are_skipped() {
    let mut all = bodies(&recorded());
    all.insert(2, (77, b"of a later version".to_vec()));
    let recording = opened(&sealed(&all));
    assert_eq!(recording.skipped(), 1);
    let count = recording.steps();
    assert_eq!(steps(recording), Ok(count));
}

#[test]
fn another_format_is_refused_with_both_numbers() {
    let mut bytes = recorded();
    bytes[7] = 9;
    let error = Recording::from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(error, "the recording has format 9, and this version of the crate reads format 1");
    let error = Recording::from_bytes(b"a letter".to_vec()).unwrap_err().to_string();
    assert_eq!(error, "this is no recording: it does not begin with `PROCREC`");
    let error = Recording::open("no/such/file").unwrap_err().to_string();
    assert!(error.starts_with("the recording \"no/such/file\" cannot be read: "), "{error}");
}

/// As a walker under its new name.
struct Stroller(Walker);

impl Process for Stroller {
    type Message = Op;
    type Output = u64;

    fn init(&mut self, entry: procession::EntryArgs) -> procession::InitResult {
        self.0.init(entry)
    }

    fn start(&mut self, out: &mut StepOutput) -> procession::InitResult {
        self.0.start(out)
    }

    fn step(&mut self, events: &mut Events<'_, Op>, out: &mut StepOutput) -> StepResult<u64> {
        match self.0.step(events, out)? {
            Step::Done(output) => Ok(Step::Done(output)),
            _ => Ok(Step::Idle),
        }
    }
}

#[test]
fn another_version_or_type_is_refused_unless_it_was_renamed() {
    let bytes = recorded();
    let other_version = replayer().version("walker 2");
    let error = opened(&bytes).replay(&other_version, Walker::new).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the recording is of version \"walker 1\", and this is version \"walker 2\": see `Recorder::renamed`"
    );
    let renamed = other_version.renamed("walker 1", "walker 2");
    assert_eq!(opened(&bytes).replay(&renamed, Walker::new).unwrap().run().unwrap().unwrap().end, StepEnd::Done);

    let strollers = replayer().process::<Stroller>();
    let stroller = || Stroller(Walker::new());
    let error = opened(&bytes).replay(&strollers, stroller).unwrap_err();
    let (old, new) = (std::any::type_name::<Walker>(), std::any::type_name::<Stroller>());
    assert_eq!(error, ReplayError::OtherType { recorded: old.into(), present: new.into() });
    let renamed = strollers.renamed(old, new);
    assert_eq!(opened(&bytes).replay(&renamed, stroller).unwrap().run().unwrap().unwrap().end, StepEnd::Done);
}

/// Plain `cargo test` reads 4,000 mutated files, and `PROCESSION_MUTATED=100000` as many as are promised.
#[test]
fn mutated_files_cause_no_panic() {
    let count = mutated_count();
    let Mutated { refused, differ, same } = read_mutated(count);
    println!("{refused} refused, {differ} differ, {same} the same");
    assert!(refused > count / 5 && differ > count / 5);
}
