//! Recipients: targets that convert messages for their process.

use std::any::{Any, TypeId, type_name};
use std::fmt;

use crate::pid::{Address, Pid};
use crate::primitives::Arc;
use crate::sched::mailbox::{AnyMailbox, Mailbox};
use crate::sched::outbox::Outbox;
use crate::sched::room_queue::QueuedSend;

/// A target that takes messages of type `T` and converts them for its process.
///
/// [`Address::map`] makes a recipient of an address and a conversion. A recipient hides the type of the messages of its
/// process. So a module can send to a process without knowledge of that type, and two modules need not know each
/// other's types.
///
/// A reference to a recipient is a target for every call, in steps and outside. A clone costs little. If a call outside
/// refuses a message, it hands the `T` back. A dead letter has the converted message.
///
/// The conversion runs in the step or in the call that sends. If a message of
/// [`send_timeout`](crate::Runtime::send_timeout) waits for room, the conversion runs when there is room, on the thread
/// that makes room. So the conversion should be short. If it panics, the caller panics.
///
/// The process may be on another node. Then the type of converted messages travels, and not `T`. A message is converted
/// when there is room for it. If it cannot be sent then, for example because it is too large, it is a dead letter.
///
/// ```
/// use procession::prelude::*;
/// use procession::Recipient;
///
/// /// A module that reads lines knows nothing of rooms.
/// fn read_lines(runtime: &Runtime, to: &Recipient<String>) {
///     let _ = runtime.send(to, "hello".to_string());
/// }
///
/// enum RoomMessage { Line(String), Close }
/// # struct Room;
/// # impl Process for Room {
/// #     type Message = RoomMessage;
/// #     type Output = ();
/// #     fn step(&mut self, events: &mut Events<RoomMessage>, _: &mut StepOutput) -> StepResult<()> {
/// #         for event in events {
/// #             match event {
/// #                 Event::Message(RoomMessage::Line(line)) => assert_eq!(line, "hello"),
/// #                 Event::Message(RoomMessage::Close) => return Ok(Step::Done(())),
/// #                 _ => {}
/// #             }
/// #         }
/// #         Ok(Step::Idle)
/// #     }
/// # }
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let room = runtime.spawn(Room)?;
/// read_lines(&runtime, &room.address().map(RoomMessage::Line));
/// room.send(RoomMessage::Close)?;
/// assert!(room.join()?.is_done());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recipient<T> {
    pid: Pid,
    route: Arc<dyn Route<T>>,
}

/// The conversion of messages of one type, with the type that the process takes erased.
pub(crate) trait Route<T>: Send + Sync {
    /// Converts a message, and puts it on the lane for its type. Returns the number of the lane.
    fn push(&self, outbox: &mut Outbox, message: T) -> u32;

    /// Whether this mailbox takes the type of the converted messages.
    fn is_for(&self, mailbox: &dyn AnyMailbox) -> bool;

    /// Converts a message of a process that waits for room.
    fn plain(&self, from: Pid, message: T) -> QueuedSend;

    /// The type of converted messages, with its name.
    fn kind(&self) -> (TypeId, &'static str);

    /// The name of the type of converted messages.
    fn type_name(&self) -> &'static str;
}

struct Converted<M, F> {
    convert: F,
    to: std::marker::PhantomData<fn(M)>,
}

impl<T, M: Send + 'static, F: Fn(T) -> M + Send + Sync> Route<T> for Converted<M, F> {
    fn push(&self, outbox: &mut Outbox, message: T) -> u32 {
        outbox.push((self.convert)(message))
    }

    fn plain(&self, from: Pid, message: T) -> QueuedSend {
        QueuedSend::plain(from, (self.convert)(message), None)
    }

    fn is_for(&self, mailbox: &dyn AnyMailbox) -> bool {
        (mailbox as &dyn Any).is::<Mailbox<M>>()
    }

    fn kind(&self) -> (TypeId, &'static str) {
        (TypeId::of::<M>(), type_name::<M>())
    }

    fn type_name(&self) -> &'static str {
        type_name::<M>()
    }
}

impl<M: Send + 'static> Address<M> {
    /// Makes a target that takes messages of type `T`, and converts each with `convert`. See [`Recipient`].
    ///
    /// `convert` is mostly a variant of the message type: `address.map(RoomMessage::Line)`.
    pub fn map<T: 'static>(self, convert: impl Fn(T) -> M + Send + Sync + 'static) -> Recipient<T> {
        Recipient { pid: self.pid(), route: Arc::new(Converted { convert, to: std::marker::PhantomData }) }
    }
}

/// The messages are not converted.
impl<T: Send + 'static> From<Address<T>> for Recipient<T> {
    fn from(address: Address<T>) -> Recipient<T> {
        address.map(std::convert::identity)
    }
}

impl<T> Recipient<T> {
    /// The PID of the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn route(&self) -> &Arc<dyn Route<T>> {
        &self.route
    }
}

impl<T> Clone for Recipient<T> {
    fn clone(&self) -> Recipient<T> {
        Recipient { pid: self.pid, route: self.route.clone() }
    }
}

impl<T> fmt::Debug for Recipient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({} taking {} as {})", self.pid, type_name::<T>(), self.route.type_name())
    }
}
