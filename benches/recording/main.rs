//! The cost of a recording: a message between two processes, with and without a recorder.
//!
//! Each message is an event and a step. So the difference is the cost of recording both. Rounds of the three runtimes
//! take turns, and the least time of each counts, because all else is disturbance.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;

use std::process::ExitCode;
use std::time::Instant;

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};
use procession::recording::{Codec, Recorder};
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};

const USAGE: &str = "\
What the recording of a message costs, in nanoseconds.

usage: cargo bench --bench recording -- [--smoke] [--only VARIANT --messages N]

  --smoke     small counts, to see that everything works
  --only      0, 1 or 2: one round of one variant, for a profile
  --messages  the messages of that round";

/// A message that is sent back until it is zero, with the process that sends it back.
struct Ball(u64, Address<Ball>);

struct Player;

impl Process for Player {
    type Message = Ball;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Ball>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let Event::Message(Ball(left, to)) = event else { return Ok(Step::Done(())) };
            let me = out.own_address::<Player>();
            if left == 0 {
                return Ok(Step::Done(()));
            }
            out.send(to, Ball(left - 1, me));
        }
        Ok(Step::Idle)
    }
}

/// Is recorded in the place of `Player`.
struct Other;

impl Process for Other {
    type Message = Ball;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Ball>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// Encodes nothing. So the cost is that of the recorder alone.
fn no_codec() -> Codec<Ball> {
    Codec::new(|_, _| (), |_| Err("it is never decoded".into()))
}

type MakeRecorder = fn() -> Option<Recorder>;

/// The nanoseconds for a message.
fn round(recorder: Option<Recorder>, messages: u64) -> f64 {
    let builder = Runtime::builder().workers(1);
    let builder = recorder.into_iter().fold(builder, |builder, recorder| builder.recorder(recorder));
    let runtime = builder.start().expect("a runtime starts");
    let (one, two) = (runtime.spawn(Player).expect("there is room"), runtime.spawn(Player).expect("there is room"));
    let begin = Instant::now();
    runtime.send(one.address(), Ball(messages, two.address())).expect("it lives");
    let last = if messages.is_multiple_of(2) { &one } else { &two };
    last.join().expect("it ends");
    begin.elapsed().as_nanos() as f64 / messages as f64
}

fn main() -> ExitCode {
    let (smoke, only, count) = match arguments::read("recording", USAGE, parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let (messages, rounds) = if smoke { (1_000, 1) } else { (1_000_000, 9) };
    let recorders: [(&str, MakeRecorder); 3] = [
        ("without a recorder", || None),
        ("with a recorder of other processes", || Some(Recorder::to(drop).process_with::<Other>(no_codec()))),
        ("recorded", || Some(Recorder::to(drop).process_with::<Player>(no_codec()))),
    ];
    if let Some(recorder) = only.and_then(|only| recorders.get(only)) {
        round(recorder.1(), count);
        return ExitCode::SUCCESS;
    }
    let mut least = [f64::INFINITY; 3];
    for _ in 0..rounds {
        for (least, (_, recorder)) in least.iter_mut().zip(recorders) {
            *least = least.min(round(recorder(), messages));
        }
    }
    // The codec does nothing. So the difference is the cost beside the codec.
    let differences = [("an event and a step, beside the codec", least[2] - least[0])];
    let variants = recorders.iter().zip(least).map(|((name, _), least)| (*name, least));
    for (name, nanos) in variants.chain(differences) {
        println!("{{\"workload\":\"recording\",\"variant\":\"{name}\",\"ns\":{nanos:.1}}}");
    }
    ExitCode::SUCCESS
}

/// Whether the counts are small, the variant that is wanted alone, and its messages. `None` if help was requested.
fn parse(arguments: &mut Parser) -> Result<Option<(bool, Option<usize>, u64)>, lexopt::Error> {
    let (mut smoke, mut only, mut count) = (cfg!(debug_assertions), None, 1_000);
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("smoke") => smoke = true,
            Long("only") => only = Some(arguments.value()?.parse()?),
            Long("messages") => count = arguments.value()?.parse()?,
            // Cargo passes this option to every benchmark.
            Long("bench") => {}
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some((smoke, only, count)))
}
