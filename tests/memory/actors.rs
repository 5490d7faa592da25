//! The memory that continuations of actors leave.

use procession::actor::{Actions, Actor, actor};
use procession::{Address, BoxError, Reply};

use crate::helpers::*;
use crate::resident::*;

/// Asks itself as often as it is told, and replies when all answers have come.
struct Echo {
    open: u32,
    told: Option<Reply<()>>,
}

enum EchoMessage {
    AskYourself(u32, Reply<()>),
    Echo(Reply<[u8; 64]>),
}

impl Actor for Echo {
    type Message = EchoMessage;
    type Output = ();

    const MESSAGES_A_STEP: usize = 64;

    fn receive(&mut self, message: EchoMessage, out: &mut Actions<Self>) -> Result<(), BoxError> {
        match message {
            EchoMessage::AskYourself(times, reply) => {
                (self.open, self.told) = (times, Some(reply));
                let own: Address<EchoMessage> = out.address();
                let captured = [7_u8; 64];
                for _ in 0..times {
                    out.ask(own, EchoMessage::Echo, LIMIT).then(out, move |echo, answer, out| {
                        assert_eq!(answer?, captured);
                        echo.open -= 1;
                        if let Some(told) = echo.told.take_if(|_| echo.open == 0) {
                            out.reply(told, ());
                        }
                        Ok(())
                    });
                }
            }
            EchoMessage::Echo(reply) => out.reply(reply, [7; 64]),
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_million_continuations_leave_nothing_behind() {
    alone(|| {
        let runtime = runtime(1);
        let echo = runtime.spawn(actor(Echo { open: 0, told: None })).unwrap();
        let round = |times| runtime.ask(&echo, |reply| EchoMessage::AskYourself(times, reply), LIMIT).wait().unwrap();
        (0..10).for_each(|_| round(10_000));
        let before = resident_kib();
        (0..100).for_each(|_| round(10_000));
        assert_grown_by_at_most(4 * 1024, before);
    });
}
