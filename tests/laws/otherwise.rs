//! The processes of a random program, written as async processes and as actors.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use procession::actor::{Actions, ActorProcess, actor};
use procession::async_process::Context;
use procession::command::CancelRequest;
use procession::exit::ExitSignal;
use procession::{
    BoxError, CommandError, Down, Event, Exit, Process, SpawnOptions, StepOutput, Tag, Upgrade, async_process,
};

use crate::actor::{Actor, Pending};
use crate::acts::{Ending, Letter};
use crate::helpers::Mutex;
use crate::records::World;

/// Counts a beginning now, and an end when it is dropped.
struct Begun(Arc<World>);

impl Begun {
    fn new(world: &Arc<World>) -> Begun {
        world.inits.fetch_add(1, Ordering::SeqCst);
        Begun(world.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
    }
}

/// The actor of an async process. It is outside of the process, so that a recovery finds it.
type Shared = Arc<Mutex<Option<Actor>>>;

impl Actor {
    pub fn into_async(
        self,
        options: SpawnOptions,
    ) -> (impl Process<Message = Letter, Output = ()> + use<>, SpawnOptions) {
        let actor: Shared = Arc::new(Mutex::new(Some(self)));
        let failed = actor.clone();
        let recover = move |_: &Exit| {
            let next = failed.lock().unwrap().as_mut()?.recovered()?;
            *failed.lock().unwrap() = Some(next);
            let actor = failed.clone();
            Some(Upgrade::to(async_process(move |context| carry_out(context, actor))))
        };
        (async_process(move |context| carry_out(context, actor)), options.recover_with(recover))
    }

    pub fn into_actor(self) -> ActorProcess<Written> {
        actor(Written { actor: self, begun: None, holding: 0 })
    }
}

/// The next event, if there is one now.
async fn event_now(context: &Context<Letter>) -> Option<Event<Letter>> {
    let mut receive = context.receive();
    poll_fn(|task| match std::pin::Pin::new(&mut receive).poll(task) {
        Poll::Ready(event) => Poll::Ready(Some(event)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Ends the step, and begins the next one.
async fn next_step() {
    let mut is_next = false;
    poll_fn(|task| {
        task.waker().wake_by_ref();
        if std::mem::replace(&mut is_next, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Each step of the plan lies between two waits.
async fn carry_out(context: Context<Letter>, shared: Shared) -> Result<(), BoxError> {
    let with = |run: &mut dyn FnMut(&mut Actor)| {
        let mut actor = shared.lock().unwrap().take();
        actor.iter_mut().for_each(run);
        *shared.lock().unwrap() = actor;
    };
    let mut begun = None;
    with(&mut |actor| begun = Some(Begun::new(&actor.world)));
    let mut first = None;
    let mut is_cancelled = false;
    loop {
        let mut events: Vec<_> = first.take().into_iter().collect();
        while let Some(event) = event_now(&context).await {
            events.push((event, context.sender()));
        }
        let mut ending = Ending::Idle;
        let step = |actor: &mut Actor, out: &mut StepOutput, events: &mut Vec<(Event<Letter>, _)>| {
            actor.step_with(out, |actor, out, got| {
                let mut cancelled = is_cancelled;
                for (event, sender) in events.drain(..) {
                    cancelled |= actor.take_one(event, sender, out.pid(), got);
                }
                cancelled
            })
        };
        // A panic of the plan must not be in the midst of this.
        with(&mut |actor| ending = context.out(|out| step(actor, out, &mut events)));
        match ending {
            Ending::Done => return Ok(()),
            Ending::Fail => return Err("by plan".into()),
            Ending::Panic => panic!("on purpose"),
            _ => {}
        }
        next_step().await;
        match ending {
            Ending::Idle => {
                let event = context.receive().await;
                first = Some((event, context.sender()));
            }
            Ending::Blocking => {
                is_cancelled |= context.blocking(|| ()).await.is_err();
                with(&mut |actor| actor.waited = true);
            }
            Ending::Wait => {
                let mut waits_for = None;
                with(&mut |actor| waits_for = actor.outstanding.values().next().copied());
                let is_answered = match waits_for {
                    Some(Pending::Number(tag) | Pending::Ask(tag)) => answered(&context, tag).await,
                    Some(Pending::Run(tag)) => answered(&context, tag).await,
                    Some(Pending::Truth(tag)) => answered(&context, tag).await,
                    Some(Pending::Time(tag)) => answered(&context, tag).await,
                    Some(Pending::Room(tag, room)) => {
                        let answer = context.answer(tag).await;
                        let is_cancelled = matches!(answer, Err(CommandError::Cancelled(_)));
                        if !is_cancelled {
                            let mut answer = Some(answer);
                            with(&mut |actor| {
                                answer.take().into_iter().for_each(|answer| actor.send_answered(answer, room))
                            });
                        }
                        (!is_cancelled).then(|| tag.id())
                    }
                    None => continue,
                };
                with(&mut |actor| {
                    // Signals that have come meanwhile come before messages that came earlier.
                    actor.waited = true;
                    if let Some(tag) = is_answered {
                        let taken = actor.outstanding.remove(&tag).is_some();
                        actor.answered(tag, taken, context.pid());
                    }
                });
                is_cancelled |= is_answered.is_none();
            }
            _ => {}
        }
    }
}

/// Waits for an answer, and returns its tag. `None` if the process was asked to stop.
async fn answered<T: 'static>(context: &Context<Letter>, tag: Tag<T>) -> Option<u64> {
    match context.answer(tag).await {
        Err(CommandError::Cancelled(_)) => None,
        _ => Some(tag.id()),
    }
}

/// As an actor, each event has a step of the plan.
pub struct Written {
    actor: Actor,
    begun: Option<Begun>,
    /// Continuations that hold messages back. Meanwhile signals come before messages that came earlier.
    holding: usize,
}

impl Written {
    fn event(&mut self, event: Option<Event<Letter>>, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let sender = out.sender();
        let ending = self
            .actor
            .step_with(out, |actor, out, got| event.is_some_and(|event| actor.take_one(event, sender, out.pid(), got)));
        match ending {
            Ending::Done => out.stop(),
            Ending::Fail => return Err("by plan".into()),
            Ending::Panic => panic!("on purpose"),
            Ending::Wait => {
                let timer = out.after(Duration::ZERO);
                self.holding += 1;
                timer.then_holding(out, |written: &mut Written, _, _| {
                    written.holding -= 1;
                    written.actor.waited = written.holding > 0;
                    Ok(())
                });
            }
            _ => {}
        }
        self.actor.waited = self.holding > 0;
        Ok(())
    }
}

impl procession::actor::Actor for Written {
    type Message = Letter;
    type Output = ();

    fn start(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.begun = Some(Begun::new(&self.actor.world));
        self.event(None, out)
    }

    fn receive(&mut self, letter: Letter, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.event(Some(Event::Message(letter)), out)
    }

    fn stop(&mut self, _: CancelRequest, out: &mut Actions<Self>) -> Result<(), BoxError> {
        out.stop();
        Ok(())
    }

    fn down(&mut self, down: Down, _: &mut Actions<Self>) -> Result<(), BoxError> {
        let me = self.actor.me.ok_or("it has not begun")?;
        self.actor.down(&down, me);
        Ok(())
    }

    fn exit(&mut self, exit: ExitSignal, _: &mut Actions<Self>) -> Result<(), BoxError> {
        let me = self.actor.me.ok_or("it has not begun")?;
        self.actor.exit(&exit, me);
        Ok(())
    }

    fn other(&mut self, event: Event<Letter>, out: &mut Actions<Self>) -> Result<(), BoxError> {
        self.event(Some(event), out)
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }

    fn recover(&mut self, _: &Exit) -> Option<Self> {
        Some(Written { actor: self.actor.recovered()?, begun: None, holding: 0 })
    }
}
