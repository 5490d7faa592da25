//! Broadcasts of durable processes to members of the store and to others.

use std::sync::Arc;

use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::script::counts;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{end, kill, stepped};

const GROUP: &str = "members";

/// Notes the numbers that it gets, until it ends.
#[derive(Default, Serialize, Deserialize)]
struct Member {
    heard: Vec<u64>,
}

#[derive(Clone, Serialize, Deserialize)]
enum MemberMessage {
    Number(u64),
    /// Counts as its length.
    Text(String),
    Over,
}

impl Process for Member {
    type Message = MemberMessage;
    type Output = Vec<u64>;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.join_group(GROUP, out.pid());
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, MemberMessage>, _: &mut StepOutput) -> StepResult<Vec<u64>> {
        for event in events {
            match event {
                Event::Message(MemberMessage::Number(number)) => self.heard.push(number),
                Event::Message(MemberMessage::Text(text)) => self.heard.push(text.len() as u64),
                Event::Message(MemberMessage::Over) => return Ok(Step::Done(self.heard.clone())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Member {
    const NAME: &str = "member";
}

/// Sends a number to one member, broadcasts the next number, and sends the one after it to the member.
#[derive(Default, Serialize, Deserialize)]
struct Speaker {
    said: u64,
}

#[derive(Serialize, Deserialize)]
enum SpeakerMessage {
    Say(Address<MemberMessage>),
    /// Broadcasts a text of this length.
    SayText(usize),
    Over,
}

impl Process for Speaker {
    type Message = SpeakerMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, SpeakerMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(SpeakerMessage::Say(to)) => {
                    out.send(to, MemberMessage::Number(self.said + 1));
                    out.broadcast(GROUP, MemberMessage::Number(self.said + 2));
                    out.send(to, MemberMessage::Number(self.said + 3));
                    self.said += 3;
                }
                Event::Message(SpeakerMessage::SayText(length)) => {
                    out.broadcast(GROUP, MemberMessage::Text("x".repeat(length)));
                }
                Event::Message(SpeakerMessage::Over) => return Ok(Step::Done(self.said)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Speaker {
    const NAME: &str = "speaker";
}

/// An ordinary member.
struct Listener(Arc<Mutex<Vec<u64>>>);

impl Process for Listener {
    type Message = MemberMessage;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.join_group(GROUP, out.pid());
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, MemberMessage>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(MemberMessage::Number(number)) => self.0.lock().unwrap().push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn open(journal: impl Journal + 'static) -> (Store, Runtime) {
    let store = store_in(journal).kind::<Member>().kind::<Speaker>();
    store.start(Runtime::builder().workers(2)).unwrap()
}

/// A speaker and two members, which are on disk.
fn begin((store, runtime): &(Store, Runtime)) -> (Address<SpeakerMessage>, [Address<MemberMessage>; 2]) {
    let members = ["1", "2"].map(|id| store.begin(id, Member::default()).unwrap().address());
    let speaker = store.begin("0", Speaker::default()).unwrap();
    speaker.wait(LIMIT).unwrap();
    until("both are members", || runtime.group_members(GROUP).len() == 2);
    stepped(runtime);
    (speaker.address(), members)
}

/// Ends the speaker and the members. Returns how many numbers were sent, and the numbers that each member has got.
fn heard(
    (store, runtime): &(Store, Runtime),
    speaker: Address<SpeakerMessage>,
    members: [Address<MemberMessage>; 2],
) -> (u64, [Vec<u64>; 2]) {
    stepped(runtime);
    store.send(speaker, SpeakerMessage::Over).unwrap();
    let said = store.result::<Speaker>("0").unwrap().wait(LIMIT).unwrap();
    stepped(runtime);
    members.iter().for_each(|member| drop(store.send(*member, MemberMessage::Over).unwrap()));
    let heard = |id| store.result::<Member>(id).unwrap().wait(LIMIT).unwrap();
    (said, ["1", "2"].map(heard))
}

#[test]
fn a_kill_at_any_call_leaves_a_broadcast_whole_and_in_order() {
    for call in 0..counts("calls", 12, 50) {
        let disk = MemoryDisk::with_seed(call);
        let opened = open(MemoryJournal::new(&disk));
        let (speaker, members) = begin(&opened);
        let first = disk.calls() + call;
        (first..first + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
        for _ in 0..2 {
            drop(opened.0.send(speaker, SpeakerMessage::Say(members[0])));
        }
        until("nothing is left to be done", || opened.1.is_idle());
        kill(&disk, opened);

        let opened = open(MemoryJournal::new(&disk));
        let (said, [one, two]) = heard(&opened, speaker, members);
        assert_eq!(one, (1..=said).collect::<Vec<_>>(), "call {call}");
        assert_eq!(two, (1..=said).filter(|number| number % 3 == 2).collect::<Vec<_>>(), "call {call}");
        end(opened);
    }
}

#[test]
fn an_ordinary_member_gets_a_broadcast_when_its_record_is_on_disk() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let opened = open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let (speaker, members) = begin(&opened);
    let told = Arc::new(Mutex::new(Vec::new()));
    opened.1.spawn(Listener(told.clone())).unwrap();
    until("it is a member", || opened.1.group_members(GROUP).len() == 3);
    gate.close();
    let receipt = opened.0.send(speaker, SpeakerMessage::Say(members[0])).unwrap();
    gate.wait_for(1);
    assert_eq!(*told.lock().unwrap(), [0; 0]);
    gate.open();
    receipt.wait(LIMIT).unwrap();
    until("it is told", || *told.lock().unwrap() == [2]);
    let (said, heard) = heard(&opened, speaker, members);
    assert_eq!((said, heard), (3, [vec![1, 2, 3], vec![2]]));
    end(opened);
}

#[test]
fn a_broadcast_that_is_larger_than_a_record_arrives() {
    // A record has 8 MiB at most.
    const MEMBERS: usize = 12;
    const LENGTH: usize = 1 << 20;
    let opened = open(MemoryJournal::new(&MemoryDisk::new()));
    let (speaker, _) = begin(&opened);
    let (store, runtime) = &opened;
    let others: Vec<_> =
        (2..MEMBERS).map(|id| store.begin(&format!("other {id}"), Member::default()).unwrap()).collect();
    until("all are members", || runtime.group_members(GROUP).len() == MEMBERS);
    let before = runtime.stats().messages.stepped;
    store.send(speaker, SpeakerMessage::SayText(LENGTH)).unwrap().wait(LIMIT).unwrap();
    until("all have it", || runtime.stats().messages.stepped == before + 1 + MEMBERS as u64);
    for (id, member) in (2..MEMBERS).zip(others) {
        store.send(member.address(), MemberMessage::Over).unwrap();
        let heard = store.result::<Member>(&format!("other {id}")).unwrap().wait(LIMIT).unwrap();
        assert_eq!(heard, [LENGTH as u64]);
    }
    store.send(speaker, SpeakerMessage::Over).unwrap();
    assert_eq!(store.result::<Speaker>("0").unwrap().wait(LIMIT).unwrap(), 0);
    end(opened);
}
