//! What becomes of the signals that wait when the state machine of their process has failed and another one replaces it.

use super::Control;
use super::Signal;
use super::Signals;

impl Control {
    /// Whether only the state machine wanted to be told this: of monitors and subscriptions that it had begun, and of links
    /// that nobody else has made. A request to stop is for the process, and so is the exit of one that had linked itself to it.
    fn is_the_state_machines(&self) -> bool {
        match self {
            Control::Cancel(_) => false,
            Control::Exit(_, by) => !by.other,
            // A recovery is told to the one that has made the link.
            Control::Down(_) | Control::Recovered(_) | Control::Group(_) => true,
        }
    }
}

impl Signals {
    /// Whether the process was asked to stop: the request waits, or a step has taken it.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.asked_to_stop.is_some() || self.control.iter().any(|control| matches!(control, Control::Cancel(_)))
    }

    /// Takes out what only the failed state machine wanted to be told, its answers included.
    pub(crate) fn take_of_failed(&mut self) -> Vec<Signal> {
        let control = self.take_control(Control::is_the_state_machines);
        // What is left need not wait behind answers any more. The order of those that wait stays.
        for (behind, _) in self.related.iter_mut().flat_map(|related| &mut related.behind) {
            behind.answers = 0;
        }
        let completions = std::mem::take(&mut self.completions).into_iter().map(|(_, completed)| completed);
        control.into_iter().map(Signal::Control).chain(completions.map(Signal::Completed)).collect()
    }

    /// Puts the request to stop that a step has taken in front of all, to be taken again.
    pub(crate) fn ask_to_stop_again(&mut self) {
        if let Some(request) = self.asked_to_stop.take() {
            self.control.push_front(Control::Cancel(request));
            // A request waits behind nothing.
            self.free += 1;
        }
    }
}
