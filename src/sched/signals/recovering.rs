//! The waiting signals of a process whose state machine has failed and is replaced by another one.

use super::Control;
use super::Signal;
use super::Signals;

impl Control {
    /// Whether only the state machine wanted this signal.
    ///
    /// These are signals of monitors and subscriptions that it had begun, and of links that no other process has
    /// made. A request to stop is for the process. So is the exit of a process that had linked itself to this one.
    fn is_the_state_machines(&self) -> bool {
        match self {
            Control::Cancel(_) => false,
            Control::Exit(_, by) => !by.other,
            // A recovery is reported to the process that has made the link.
            Control::Down(_) | Control::Recovered(_) | Control::Group(_) => true,
        }
    }
}

impl Signals {
    /// Whether the process was asked to stop: the request waits, or a step has taken it.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.asked_to_stop.is_some() || self.control.iter().any(|control| matches!(control, Control::Cancel(_)))
    }

    /// Takes out the signals that only the failed state machine wanted, including its answers.
    pub(crate) fn take_of_failed(&mut self) -> Vec<Signal> {
        let control = self.take_control(Control::is_the_state_machines);
        // The remaining signals need not wait behind answers any longer. The order of those that wait stays.
        for (behind, _) in self.related.iter_mut().flat_map(|related| &mut related.behind) {
            behind.answers = 0;
        }
        let completions = std::mem::take(&mut self.completions).into_iter().map(|(_, completed)| completed);
        control.into_iter().map(Signal::Control).chain(completions.map(Signal::Completed)).collect()
    }

    /// Puts signals that a step has taken in front of all others, to be taken again.
    pub(crate) fn give_back(&mut self, given_back: Vec<Control>) {
        given_back.into_iter().rev().for_each(|control| self.control.push_front(control));
        // The step may have been given no messages. The messages that must come first are searched again.
        self.free = 0;
    }

    /// Puts the request to stop that a step has taken in front of all others, to be taken again.
    pub(crate) fn ask_to_stop_again(&mut self) {
        if let Some(request) = self.asked_to_stop.take() {
            self.control.push_front(Control::Cancel(request));
            // A request waits behind nothing.
            self.free += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::outcome::{Exit, Reason};
    use crate::process::{CancelRequest, Down, Monitor, Pid, Recovered, RecoveredBy};
    use crate::sched::mailbox::{Envelope, Queue};

    fn message_of(from: Pid) -> Queue<()> {
        Queue::One(Envelope { from: Some(from), message: () })
    }

    #[test]
    fn what_is_given_back_comes_first_and_in_order_but_overtakes_no_message() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|slot| Pid::new(1, slot, 1).unwrap());
        let down = |pid| {
            Control::Down(Down { monitor: Monitor::new(0, pid), pid, exit: Exit::Terminated(Reason::Terminated) })
        };
        let mut signals = Signals::default();
        [one, two].into_iter().for_each(|pid| signals.add(Signal::Control(down(pid)), 0));
        // From now on it is known that the second follows no message.
        assert_eq!(signals.next_control(Some(&Queue::<()>::Empty)).and_then(|told| told.follows()), Some(one));
        signals.give_back([three, one, four].map(down).into());
        let here = message_of(three);
        for (popped, expected) in [(0, vec![one, four, two]), (1, vec![three])] {
            signals.popped = popped;
            let next = || signals.next_control(Some(&here))?.follows();
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected);
        }
        assert!(signals.is_empty());
    }

    #[test]
    fn a_postponed_recovery_lets_no_down_overtake_a_message() {
        let [recovered, ended] = [1, 2].map(|slot| Pid::new(1, slot, 1).unwrap());
        let exit = || Exit::Terminated(Reason::Terminated);
        let down = |pid| Control::Down(Down { monitor: Monitor::new(0, pid), pid, exit: exit() });
        let cancel = Control::Cancel(CancelRequest { reason: Reason::Terminated, deadline: None });
        let recovery = Control::Recovered(Recovered { pid: recovered, exit: exit(), by: RecoveredBy::Process });
        let mut signals = Signals::default();
        signals.add(Signal::Control(cancel), 0);
        signals.add(Signal::Control(recovery), 0);
        // A step takes one signal. From now on it is known that the recovery follows no message.
        let here = message_of(ended);
        assert!(matches!(signals.next_control(Some(&here)), Some(Control::Cancel(_))));
        // Then both processes end. The last message of one is here. The last message of the other has not come over.
        [recovered, ended].into_iter().for_each(|pid| signals.add(Signal::Control(down(pid)), 1));
        signals.wait_behind(1, &message_of(recovered));
        assert!(signals.next_control(Some(&here)).is_none(), "the message that is here comes first");
        for (popped, expected) in [(1, vec![ended]), (2, vec![recovered, recovered])] {
            signals.popped = popped;
            let next = || signals.next_control(Some(&Queue::<()>::Empty))?.follows();
            assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected);
        }
        assert!(signals.is_empty());
    }
}
