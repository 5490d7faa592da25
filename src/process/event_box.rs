//! What a control signal says, as an event holds it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::command::CancelRequest;
use super::names::GroupEvent;
use super::relation::{Down, ExitSignal, Recovered};
use crate::sched::signals::Control;

/// What a process was told by a control signal: a [`CancelRequest`], [`Down`], [`ExitSignal`], [`Recovered`] or
/// [`GroupEvent`]. It is read like a reference, and [`into_inner`](Self::into_inner) takes it out.
// One type in memory for all of them: the code that drops an event stands in every step, and grows with each type that an
// event may hold.
pub struct EventBox<T> {
    control: Box<Control>,
    says: PhantomData<T>,
}

impl<T> EventBox<T> {
    pub(super) fn new(control: Box<Control>) -> EventBox<T> {
        EventBox { control, says: PhantomData }
    }

    /// The signal as it was.
    pub(super) fn into_control(self) -> Control {
        *self.control
    }
}

macro_rules! event_box {
    ($($kind:ident: $says:ty),*) => {$(
        impl EventBox<$says> {
            /// The thing itself.
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
