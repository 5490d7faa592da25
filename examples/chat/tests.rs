//! The hall, the room and the command line, without clients.

use std::sync::Arc;

use lexopt::Parser;
use procession::Pid;
use procession::actor::{ActorProcess, actor};
use procession::testing::{Driver, question};
use tokio::net::TcpListener;

use crate::room::{Hall, HallMessage, Member, Room, RoomMessage};

#[test]
fn invalid_options_are_refused() {
    for wrong in [vec!["--listen", "nowhere"], vec!["--clients", "0"], vec!["--lines"], vec!["--room", "x"]] {
        assert!(super::parse(&mut Parser::from_args(wrong)).is_err());
    }
}

/// Has a member join. Returns whether it is admitted.
fn join(room: &mut Driver<ActorProcess<Room>>, member: &str, name: &str) -> bool {
    let pid: Pid = member.parse().unwrap();
    let (joined, answer) = question();
    room.message(RoomMessage::Admit(Member { pid, name: name.into(), writer: pid.typed() }, joined)).run();
    answer.answer().unwrap().unwrap().is_some()
}

/// The member accepts the next line. Returns the line.
fn accepted(room: &mut Driver<ActorProcess<Room>>) -> Option<Arc<str>> {
    Some(room.accept_send().ok()?.1)
}

#[test]
fn a_second_member_needs_another_name() {
    let mut room = Driver::new(actor(Room::default()));
    assert!(join(&mut room, "<0.7.1>", "ann"));
    assert!(!join(&mut room, "<0.8.1>", "ann"));
    assert!(join(&mut room, "<0.8.1>", "bob"));
}

#[test]
fn a_newcomer_waits_until_a_busy_room_takes_a_message() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = tokio.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let mut hall = Driver::new(actor(Hall { listener: listener.into() }));
    let (ann, room): (Pid, Pid) = ("<0.7.1>".parse().unwrap(), "<0.9.1>".parse().unwrap());
    hall.name("room", room);
    let (joined, answer) = question();
    let member = Member { pid: ann, name: "ann".into(), writer: ann.typed() };
    hall.message(HallMessage::Admit("room".into(), member, joined)).run();
    // The room is full, and nothing was refused.
    assert_eq!(hall.unread(), 0);
    let (to, RoomMessage::Admit(member, joined)) = hall.accept_send().unwrap() else { panic!("another message") };
    assert_eq!((to, &*member.name), (room, "ann"));
    joined.send(Some(room.typed()));
    assert!(answer.answer().unwrap().unwrap().is_some());
}

#[test]
fn a_line_waits_until_all_members_have_the_one_before() {
    let mut room = Driver::new(actor(Room::default()));
    join(&mut room, "<0.7.1>", "ann");
    join(&mut room, "<0.8.1>", "bob");
    assert_eq!(accepted(&mut room).as_deref(), Some("* bob has come"));
    let bob = "<0.8.1>".parse().unwrap();
    room.message_from(bob, RoomMessage::Say("one".into())).message_from(bob, RoomMessage::Say("two".into()));
    for line in ["bob: one", "bob: two"] {
        room.run();
        assert_eq!([accepted(&mut room), accepted(&mut room)].map(Option::unwrap), [line; 2].map(Arc::from));
    }
    assert_eq!(accepted(&mut room), None);
    room.ended("<0.7.1>".parse().unwrap(), &procession::Exit::Done(())).run();
    assert_eq!(accepted(&mut room).as_deref(), Some("* ann has left"));
}
