//! NQueens: a master hands boards to workers in turn. The workers send back boards with one queen more, or solutions.

use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::queens::{Board, Search, WORKERS, check, solutions};
use super::runtime::{done, finish};

enum MasterMessage {
    /// A board to work on.
    Board(Board),
    Solution,
    /// A worker has finished a board.
    Done,
    /// A worker has ended.
    Stopped,
}

/// Ends when all workers have ended. Returns the number of solutions.
struct Master {
    root: Board,
    workers: Vec<Address<WorkerMessage>>,
    search: Search,
    result: Option<u64>,
    stopped: usize,
}

impl Master {
    fn hand_out(&mut self, board: Board, out: &mut StepOutput) {
        out.send(self.workers[self.search.send()], WorkerMessage::Board(board));
    }
}

impl Process for Master {
    type Message = MasterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<MasterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        if self.workers.is_empty() {
            for _ in 0..WORKERS {
                self.workers.push(out.spawn(Worker { master: out.pid().typed() })?);
            }
            self.hand_out(self.root, out);
        }
        for event in events {
            match (event, self.result) {
                (Event::Message(MasterMessage::Stopped), Some(result)) => {
                    self.stopped += 1;
                    if self.stopped == WORKERS {
                        return Ok(Step::Done(result));
                    }
                }
                (Event::Cancel(_), _) => return Ok(Step::Done(0)),
                // Results beyond the limit are ignored.
                (_, Some(_)) => {}
                (Event::Message(MasterMessage::Board(board)), None) => self.hand_out(board, out),
                (Event::Message(MasterMessage::Solution), None) => self.search.is_solved(),
                (Event::Message(MasterMessage::Done), None) => self.search.is_done(),
                _ => {}
            }
            if self.result.is_none()
                && let Some(result) = self.search.result()
            {
                self.result = Some(result);
                self.workers.iter().for_each(|worker| out.send(*worker, WorkerMessage::Stop));
            }
        }
        Ok(Step::Idle)
    }
}

enum WorkerMessage {
    Board(Board),
    Stop,
}

struct Worker {
    master: Address<MasterMessage>,
}

impl Process for Worker {
    type Message = WorkerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<WorkerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(WorkerMessage::Board(board)) => {
                    if board.is_deep() || board.is_full() {
                        board.solve(&mut || out.send(self.master, MasterMessage::Solution));
                    } else {
                        board.next().for_each(|board| out.send(self.master, MasterMessage::Board(board)));
                    }
                    out.send(self.master, MasterMessage::Done);
                }
                Event::Message(WorkerMessage::Stop) => {
                    out.send(self.master, MasterMessage::Stopped);
                    return Ok(Step::Done(()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let root = Board::empty(setting.n)?;
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let master = Master { root, workers: Vec::new(), search: Search::default(), result: None, stopped: 0 };
    let found = done(&runtime.spawn(master)?)?;
    // If there is no solution, the search for one is the operation.
    let measured = Measured::since(began, solutions(setting.n).unwrap_or_default().max(1));
    check(found, setting.n)?;
    finish(&runtime)?;
    Ok(measured)
}
