//! The box in which an event holds a control signal.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::command::CancelRequest;
use super::names::GroupEvent;
use super::relation::{Down, ExitSignal, Recovered};
use crate::sched::signals::Control;

/// A box with the content of a control signal. The content is a [`CancelRequest`], [`Down`], [`ExitSignal`],
/// [`Recovered`] or [`GroupEvent`]. Read it as through a reference, or take it out with
/// [`into_inner`](Self::into_inner).
// All contents have one type in memory, because the code that drops an event is part of every step. That code would
// grow with each further type.
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
            /// Takes the content out of the box.
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
