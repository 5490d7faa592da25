//! NQueens on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::queens::{Board, Search, WORKERS, check, solutions};

enum MasterMessage {
    /// A board to work on.
    Board(Board),
    Solution,
    /// A worker has finished a board.
    Done,
    /// A worker has ended.
    Stopped,
}

impl Message for MasterMessage {
    type Result = ();
}

/// Reports the number of solutions when all workers have ended. The workers take turns on the threads.
struct Master {
    root: Board,
    threads: Vec<ArbiterHandle>,
    workers: Vec<Addr<Worker>>,
    search: Search,
    result: Option<u64>,
    stopped: usize,
    over: Sender<u64>,
}

impl Master {
    fn hand_out(&mut self, board: Board) {
        self.workers[self.search.send()].do_send(WorkerMessage::Board(board));
    }
}

impl Actor for Master {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        for one in 0..WORKERS {
            let (master, thread) = (context.address(), &self.threads[one % self.threads.len()]);
            self.workers.push(Worker::start_in_arbiter(thread, |_| Worker { master }));
        }
        self.hand_out(self.root);
    }
}

impl Handler<MasterMessage> for Master {
    type Result = ();

    fn handle(&mut self, message: MasterMessage, context: &mut Context<Self>) {
        match (message, self.result) {
            (MasterMessage::Stopped, Some(result)) => {
                self.stopped += 1;
                if self.stopped == WORKERS {
                    let _ = self.over.send(result);
                    context.stop();
                }
            }
            // Results beyond the limit are ignored.
            (_, Some(_)) | (MasterMessage::Stopped, None) => {}
            (MasterMessage::Board(board), None) => self.hand_out(board),
            (MasterMessage::Solution, None) => self.search.is_solved(),
            (MasterMessage::Done, None) => self.search.is_done(),
        }
        if self.result.is_none()
            && let Some(result) = self.search.result()
        {
            self.result = Some(result);
            self.workers.iter().for_each(|worker| worker.do_send(WorkerMessage::Stop));
        }
    }
}

enum WorkerMessage {
    Board(Board),
    Stop,
}

impl Message for WorkerMessage {
    type Result = ();
}

struct Worker {
    master: Addr<Master>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<WorkerMessage> for Worker {
    type Result = ();

    fn handle(&mut self, message: WorkerMessage, context: &mut Context<Self>) {
        match message {
            WorkerMessage::Board(board) => {
                if board.is_deep() || board.is_full() {
                    board.solve(&mut || self.master.do_send(MasterMessage::Solution));
                } else {
                    board.next().for_each(|board| self.master.do_send(MasterMessage::Board(board)));
                }
                self.master.do_send(MasterMessage::Done);
            }
            WorkerMessage::Stop => {
                self.master.do_send(MasterMessage::Stopped);
                context.stop();
            }
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let root = Board::empty(setting.n)?;
    let stage = Stage::new(setting);
    let (over, found) = channel();
    let began = Instant::now();
    let (threads, workers, search) = (stage.threads(), Vec::new(), Search::default());
    stage.start(Master { root, threads, workers, search, result: None, stopped: 0, over });
    let found = report(&found)?;
    let measured = Measured::since(began, solutions(setting.n).unwrap_or_default().max(1));
    check(found, setting.n)?;
    stage.finish()?;
    Ok(measured)
}
