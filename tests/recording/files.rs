//! The file of a recording: cut off, damaged, of another format, version or type.

use std::ops::Range;

use procession::recording::{FORMAT, OpenError, Recording, ReplayError, StepEnd};
use procession::{Events, Process, Step, StepOutput, StepResult};

use crate::walker::{Op, Saved, Walker, opened, replayer, walk};

/// A recording of a few steps.
fn recorded() -> Vec<u8> {
    let saved = Saved::default();
    walk(saved.recorder().save_at_end(), [Op::Add(1), Op::Look, Op::Name(0), Op::Look, Op::Add(u64::MAX)]);
    saved.one()
}

/// The frames of a file: the bytes of each, and its kind.
fn frames(bytes: &[u8]) -> Vec<(Range<usize>, u8)> {
    let (mut at, mut frames) = (8, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        frames.push((at..at + 9 + length + 4, bytes[at + 4]));
        at += 9 + length + 4;
    }
    frames
}

/// A file with these frames. It computes the check sums.
fn sealed(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"PROCREC".to_vec();
    bytes.push(FORMAT);
    for (number, (kind, body)) in frames.iter().enumerate() {
        let length = body.len() as u32;
        let mut check = crc32fast::Hasher::new();
        check.update(&(number as u32).to_le_bytes());
        check.update(&length.to_le_bytes());
        check.update(&[*kind]);
        let check = check.finalize();
        bytes.extend(length.to_le_bytes());
        bytes.push(*kind);
        bytes.extend(check.to_le_bytes());
        bytes.extend(body);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&check.to_le_bytes());
        crc.update(body);
        bytes.extend(crc.finalize().to_le_bytes());
    }
    bytes
}

fn bodies(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    frames(bytes).into_iter().map(|(all, kind)| (kind, bytes[all.start + 9..all.end - 4].to_vec())).collect()
}

/// Replays as many steps as there are. Returns their number.
fn steps(recording: Recording) -> Result<usize, ReplayError> {
    let mut replay = recording.replay(&replayer(), Walker::new)?;
    let mut count = 0;
    while replay.step()?.is_some() {
        count += 1;
    }
    Ok(count)
}

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
fn mutated_files_cause_no_panic_and_need_little_memory() {
    let count = std::env::var("PROCESSION_MUTATED").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000);
    let whole = recorded();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let (mut found, mut differs, mut same) = (0, 0, 0);
    for number in 0..count {
        let bytes = if number % 4 == 0 {
            let mut bytes = whole.clone();
            let (from, length) = (random(bytes.len()), random(9));
            match random(3) {
                0 => bytes[from] = random(256) as u8,
                1 => drop(bytes.drain(from..(from + length).min(whole.len()))),
                _ => bytes.extend_from_slice(&whole[..from]),
            }
            bytes
        } else {
            // The check sums fit. So the content is decoded, and replayed.
            let mut all = bodies(&whole);
            for _ in 0..=random(3) {
                let frame = random(all.len());
                let body = &mut all[frame].1;
                let place = random(body.len());
                match random(5) {
                    0 if !body.is_empty() => drop(body.remove(place)),
                    1 => body.insert(place.min(body.len()), random(256) as u8),
                    2 => body.truncate(place),
                    3 => all[frame].0 = random(6) as u8,
                    _ if !body.is_empty() => body[place] = [0xff, 0x7f, 0, random(256) as u8][random(4)],
                    _ => {}
                }
            }
            sealed(&all)
        };
        match Recording::from_bytes(bytes) {
            Err(_) => found += 1,
            Ok(recording) => match recording.begins_with_snapshot() {
                true => drop(recording.replay_snapshot::<Walker>(&replayer()).map(|mut replay| replay.run())),
                false => match steps(recording) {
                    Ok(_) => same += 1,
                    Err(_) => differs += 1,
                },
            },
        }
    }
    println!("{found} refused, {differs} differ, {same} the same");
    assert!(found > count / 5 && differs > count / 5);
}
