//! The workflow of one order, as a state machine.

use std::fmt;
use std::time::{Duration, SystemTime};

use procession::command::TimerFired;
use procession::{CommandError, Completion, Event, Events, Process, Step, StepOutput, StepResult, Tag};
#[cfg(feature = "sqlite")]
use serde::{Deserialize, Serialize};

use crate::gateway::{Charge, Deed, Problem, Refund, Release, Reserve, Ship, Ticket};

/// The time within which an order must be shipped.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How often a call is tried before the order is given up.
pub(crate) const TRIES: u32 = 5;

/// How often a call that undoes another is tried. After that a human must look at the order.
pub(crate) const UNDO_TRIES: u32 = 6;

/// The time after which a call is taken for lost. The slowest call takes 40 seconds. Without a limit, an order would
/// wait for ever if a partner never answers: its deadline waits for a pending call, because it may have been carried
/// out.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(90);

/// The pause after the first failure. Each later pause is twice as long as the one before.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) enum Outcome {
    Shipped,
    /// A partner refused the order for good.
    Refused,
    /// A call failed once too often.
    GivenUp,
    /// The deadline passed.
    TooLate,
    Cancelled,
    /// A call could not be undone, or it is unknown whether it was done.
    NeedsAttention,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Receipt {
    pub(crate) outcome: Outcome,
    /// The amount that the bank took.
    pub(crate) paid: u64,
    pub(crate) took: Duration,
    /// The calls that a human must look at.
    pub(crate) open: Vec<Open>,
}

/// A call that is neither done nor undone for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) enum Open {
    Shipping,
    Refund,
    Release,
}

/// One order. It is reserved, charged and shipped. If that fails, it is refunded and released.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) struct Order {
    ticket: Ticket,
    state: State,
    began: Option<SystemTime>,
    deadline: Option<Tag<TimerFired>>,
    /// The reason why the order will not be shipped. While a call is pending, this takes effect when the call is
    /// answered.
    why: Option<Outcome>,
    paid: u64,
    open: Vec<Open>,
}

#[derive(Default)]
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
enum State {
    #[default]
    New,
    Reserving(Call<Reserve>),
    Charging(Call<Charge>),
    Shipping(Call<Ship>),
    Refunding(Call<Refund>),
    Releasing(Call<Release>),
    Over(Outcome),
}

/// An order gets no messages. Only answers, timers and a request to stop cause steps.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
pub(crate) enum NoMessage {}

impl Process for Order {
    type Message = NoMessage;
    type Output = Receipt;

    fn step(&mut self, events: &mut Events<NoMessage>, out: &mut StepOutput) -> StepResult<Receipt> {
        let began = *self.began.get_or_insert_with(|| out.system_time());
        for event in events {
            let state = std::mem::take(&mut self.state);
            self.state = self.next(state, event, out);
        }
        if let State::New = self.state {
            self.deadline = Some(out.after(DEADLINE));
            self.state = State::Reserving(Call::begin(self.ticket, out));
        }
        let State::Over(outcome) = self.state else { return Ok(Step::Wait) };
        Ok(Step::Done(Receipt {
            outcome,
            paid: self.paid,
            took: out.system_time().duration_since(began).unwrap_or_default(),
            open: std::mem::take(&mut self.open),
        }))
    }
}

impl Order {
    pub(crate) fn new(id: usize, cents: u64) -> Order {
        Order {
            ticket: Ticket { order: id, cents, attempt: 1 },
            state: State::New,
            began: None,
            deadline: None,
            why: None,
            paid: 0,
            open: Vec::new(),
        }
    }

    /// The workflow: the next state.
    fn next(&mut self, state: State, event: Event<NoMessage>, out: &mut StepOutput) -> State {
        match (state, event) {
            (state, Event::Cancel(_)) => self.stop(state, Outcome::Cancelled, out),
            (state, Event::Completed(done)) if self.deadline.is_some_and(|deadline| done.is(deadline)) => {
                self.stop(state, Outcome::TooLate, out)
            }
            (State::Reserving(call), Event::Completed(done)) => match call.hear(&done, self.tries(), out) {
                Heard::Nothing(call) => State::Reserving(call),
                Heard::Done(()) if self.is_stopped() => self.release(out),
                Heard::Done(()) => State::Charging(Call::begin(self.ticket, out)),
                Heard::Refused => State::Over(self.because(Outcome::Refused)),
                Heard::GivenUp { in_doubt } => self.reservation_failed(Outcome::GivenUp, in_doubt, out),
            },
            (State::Charging(call), Event::Completed(done)) => match call.hear(&done, self.tries(), out) {
                Heard::Nothing(call) => State::Charging(call),
                Heard::Done(payment) => {
                    self.paid = payment.0;
                    if self.is_stopped() { self.refund(out) } else { State::Shipping(Call::begin(self.ticket, out)) }
                }
                Heard::Refused => self.charge_failed(Outcome::Refused, false, out),
                Heard::GivenUp { in_doubt } => self.charge_failed(Outcome::GivenUp, in_doubt, out),
            },
            (State::Shipping(call), Event::Completed(done)) => match call.hear(&done, self.tries(), out) {
                Heard::Nothing(call) => State::Shipping(call),
                // This holds even if the order was to be stopped meanwhile. A shipped parcel cannot be called back.
                Heard::Done(_parcel) => State::Over(Outcome::Shipped),
                Heard::Refused => self.shipping_failed(Outcome::Refused, false, out),
                Heard::GivenUp { in_doubt } => self.shipping_failed(Outcome::GivenUp, in_doubt, out),
            },
            (State::Refunding(call), Event::Completed(done)) => match call.hear(&done, UNDO_TRIES, out) {
                Heard::Nothing(call) => State::Refunding(call),
                Heard::Done(()) => {
                    self.paid = 0;
                    self.release(out)
                }
                Heard::Refused | Heard::GivenUp { .. } => {
                    self.open.push(Open::Refund);
                    self.release(out)
                }
            },
            (State::Releasing(call), Event::Completed(done)) => match call.hear(&done, UNDO_TRIES, out) {
                Heard::Nothing(call) => State::Releasing(call),
                Heard::Done(()) => self.over(),
                Heard::Refused | Heard::GivenUp { .. } => {
                    self.open.push(Open::Release);
                    self.over()
                }
            },
            (state, _) => state,
        }
    }

    /// Stops the order: the deadline passed, or it was cancelled. A pending call is waited for, because it may have
    /// been carried out. A pause is cut short. An undo that has begun goes on.
    fn stop(&mut self, state: State, why: Outcome, out: &mut StepOutput) -> State {
        let why = self.because(why);
        match state {
            State::New => State::Over(why),
            State::Reserving(Call { waits: Waits::Pause(timer), in_doubt, .. }) => {
                out.cancel_timer(timer);
                self.reservation_failed(why, in_doubt, out)
            }
            State::Charging(Call { waits: Waits::Pause(timer), in_doubt, .. }) => {
                out.cancel_timer(timer);
                self.charge_failed(why, in_doubt, out)
            }
            State::Shipping(Call { waits: Waits::Pause(timer), in_doubt, .. }) => {
                out.cancel_timer(timer);
                self.shipping_failed(why, in_doubt, out)
            }
            state => state,
        }
    }

    fn reservation_failed(&mut self, why: Outcome, in_doubt: bool, out: &mut StepOutput) -> State {
        let why = self.because(why);
        // The call may have succeeded, so it is undone. A release without a reservation does no harm.
        if in_doubt { self.release(out) } else { State::Over(why) }
    }

    fn charge_failed(&mut self, why: Outcome, in_doubt: bool, out: &mut StepOutput) -> State {
        self.because(why);
        if in_doubt { self.refund(out) } else { self.release(out) }
    }

    fn shipping_failed(&mut self, why: Outcome, in_doubt: bool, out: &mut StepOutput) -> State {
        self.because(why);
        if in_doubt {
            // The parcel may have been shipped. So it would be wrong to refund the money, and equally wrong to keep
            // it.
            self.open.push(Open::Shipping);
            return self.over();
        }
        self.refund(out)
    }

    fn refund(&mut self, out: &mut StepOutput) -> State {
        State::Refunding(Call::begin(self.ticket, out))
    }

    fn release(&mut self, out: &mut StepOutput) -> State {
        State::Releasing(Call::begin(self.ticket, out))
    }

    fn over(&self) -> State {
        let why = self.why.unwrap_or(Outcome::GivenUp);
        State::Over(if self.open.is_empty() { why } else { Outcome::NeedsAttention })
    }

    /// Notes why the order will not be shipped. The first reason counts.
    fn because(&mut self, why: Outcome) -> Outcome {
        *self.why.get_or_insert(why)
    }

    fn is_stopped(&self) -> bool {
        self.why.is_some()
    }

    /// How often a call may be tried. It is not repeated if the order is to be stopped.
    fn tries(&self) -> u32 {
        if self.is_stopped() { 0 } else { TRIES }
    }
}

/// One deed and its retries. Either a call is pending, or there is a pause before the next one.
#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
struct Call<D: Deed> {
    ticket: Ticket,
    /// Whether an answer was lost, so that the deed may have been done.
    in_doubt: bool,
    waits: Waits<D::Output>,
}

#[cfg_attr(feature = "sqlite", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "sqlite", serde(bound = ""))]
enum Waits<T> {
    Answer(Tag<T>),
    Pause(Tag<TimerFired>),
}

/// The meaning of a completion for its call.
enum Heard<D: Deed> {
    /// The call goes on.
    Nothing(Call<D>),
    Done(D::Output),
    /// The deed was not done, and never will be.
    Refused,
    /// All allowed attempts have failed.
    GivenUp {
        in_doubt: bool,
    },
}

impl<D: Deed> Call<D> {
    fn begin(ticket: Ticket, out: &mut StepOutput) -> Call<D> {
        Call { ticket, in_doubt: false, waits: Waits::Answer(out.command_timeout(D::new(ticket), CALL_LIMIT)) }
    }

    fn hear(self, done: &Completion, tries: u32, out: &mut StepOutput) -> Heard<D> {
        match self.waits {
            Waits::Pause(timer) if done.is(timer) => {
                let ticket = Ticket { attempt: self.ticket.attempt + 1, ..self.ticket };
                Heard::Nothing(Call {
                    ticket,
                    waits: Waits::Answer(out.command_timeout(D::new(ticket), CALL_LIMIT)),
                    ..self
                })
            }
            Waits::Pause(_) => Heard::Nothing(self),
            Waits::Answer(tag) => match done.take(tag) {
                None => Heard::Nothing(self),
                Some(Ok(output)) => Heard::Done(output),
                Some(Err(error)) => self.failed(&error, tries, out),
            },
        }
    }

    fn failed(mut self, error: &CommandError, tries: u32, out: &mut StepOutput) -> Heard<D> {
        match problem(error) {
            Some(Problem::Refused(_)) => return Heard::Refused,
            Some(Problem::Busy) => {}
            // The gateway did not answer.
            None => self.in_doubt = true,
        }
        if self.ticket.attempt >= tries {
            return Heard::GivenUp { in_doubt: self.in_doubt };
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.ticket.attempt - 1);
        Heard::Nothing(Call { waits: Waits::Pause(out.after(pause)), ..self })
    }
}

/// The problem that the gateway reported, if the gateway failed the call.
fn problem(error: &CommandError) -> Option<&Problem> {
    let CommandError::Failed(failure) = error else { return None };
    failure.error().downcast_ref()
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 6] = [
        Outcome::Shipped,
        Outcome::Refused,
        Outcome::GivenUp,
        Outcome::TooLate,
        Outcome::Cancelled,
        Outcome::NeedsAttention,
    ];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Shipped => "shipped",
            Outcome::Refused => "refused",
            Outcome::GivenUp => "given up",
            Outcome::TooLate => "too late",
            Outcome::Cancelled => "cancelled",
            Outcome::NeedsAttention => "needs attention",
        })
    }
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Open::Shipping => "it may have been shipped",
            Open::Refund => "the money was not given back",
            Open::Release => "the goods are still set aside",
        })
    }
}
