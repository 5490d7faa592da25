//! What a control signal says, in the form in which a step is given it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::command::CancelRequest;
use super::naming::GroupEvent;
use super::relation::{Down, ExitSignal, Recovered};
use super::signals::Control;

/// What a process was told by a control signal: a [`CancelRequest`], [`Down`], [`ExitSignal`], [`Recovered`] or
/// [`GroupEvent`]. It is read like a reference, and [`into_inner`](Self::into_inner) takes it out.
// One type in memory for all of them: the code that drops an event stands in every step, and grows with each type that an
// event may hold.
pub struct Told<T> {
    control: Box<Control>,
    says: PhantomData<T>,
}

impl<T> Told<T> {
    pub(super) fn new(control: Box<Control>) -> Told<T> {
        Told { control, says: PhantomData }
    }

    /// The signal as it was.
    pub(super) fn into_control(self) -> Control {
        *self.control
    }
}

macro_rules! told {
    ($($kind:ident: $says:ty),*) => {$(
        impl Told<$says> {
            /// The thing itself.
            pub fn into_inner(self) -> $says {
                match *self.control {
                    Control::$kind(says, ..) => says,
                    _ => unreachable!("it was made from one of its own kind"),
                }
            }
        }

        impl Deref for Told<$says> {
            type Target = $says;

            fn deref(&self) -> &$says {
                match &*self.control {
                    Control::$kind(says, ..) => says,
                    _ => unreachable!("it was made from one of its own kind"),
                }
            }
        }

        impl fmt::Debug for Told<$says> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }
    )*};
}

told!(Cancel: CancelRequest, Down: Down, Exit: ExitSignal, Recovered: Recovered, Group: GroupEvent);
