//! The box in which an event holds a control signal.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::command::CancelRequest;
use super::names::GroupEvent;
use super::relation::{Down, ExitSignal, Recovered};
use crate::sched::signals::Control;

/// The content of a control signal: a [`CancelRequest`], [`Down`], [`ExitSignal`], [`Recovered`] or [`GroupEvent`].
/// It is read like a reference, and [`into_inner`](Self::into_inner) takes it out.
// All of them have one type in memory. The code that drops an event is part of every step, and grows with each type
// that an event may hold.
pub struct EventBox<T> {
    control: Box<Control>,
    says: PhantomData<T>,
}

impl<T> EventBox<T> {
    pub(super) fn new(control: Box<Control>) -> EventBox<T> {
        EventBox { control, says: PhantomData }
    }

    /// The whole signal.
    pub(super) fn into_control(self) -> Control {
        *self.control
    }
}

macro_rules! event_box {
    ($($kind:ident: $says:ty),*) => {$(
        impl EventBox<$says> {
            /// Takes the content out.
            pub fn into_inner(self) -> $says {
                match *self.control {
                    Control::$kind(says, ..) => says,
                    _ => unreachable!("it was made from one of its own kind"),
                }
            }
        }

        impl Deref for EventBox<$says> {
            type Target = $says;

            fn deref(&self) -> &$says {
                match &*self.control {
                    Control::$kind(says, ..) => says,
                    _ => unreachable!("it was made from one of its own kind"),
                }
            }
        }

        impl fmt::Debug for EventBox<$says> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }
    )*};
}

event_box!(Cancel: CancelRequest, Down: Down, Exit: ExitSignal, Recovered: Recovered, Group: GroupEvent);
