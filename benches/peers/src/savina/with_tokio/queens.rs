//! NQueens on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime;
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

/// Ends when all workers have ended. Returns the number of solutions.
async fn lead(root: Board) -> Option<u64> {
    let (me, mut inbox) = unbounded_channel();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (worker, inbox) = unbounded_channel();
            tokio::spawn(work(inbox, me.clone()));
            worker
        })
        .collect();
    let (mut search, mut result, mut stopped) = (Search::default(), None, 0);
    workers[search.send()].send(WorkerMessage::Board(root)).ok()?;
    while stopped < WORKERS {
        match (inbox.recv().await?, result) {
            (MasterMessage::Stopped, _) => stopped += 1,
            // Results beyond the limit are ignored.
            (_, Some(_)) => {}
            (MasterMessage::Board(board), None) => {
                workers[search.send()].send(WorkerMessage::Board(board)).ok()?;
            }
            (MasterMessage::Solution, None) => search.is_solved(),
            (MasterMessage::Done, None) => search.is_done(),
        }
        if result.is_none() {
            result = search.result();
            if result.is_some() {
                workers.iter().try_for_each(|worker| worker.send(WorkerMessage::Stop)).ok()?;
            }
        }
    }
    result
}

enum WorkerMessage {
    Board(Board),
    Stop,
}

async fn work(mut inbox: UnboundedReceiver<WorkerMessage>, master: UnboundedSender<MasterMessage>) {
    while let Some(message) = inbox.recv().await {
        match message {
            WorkerMessage::Board(board) => {
                if board.is_deep() || board.is_full() {
                    board.solve(&mut || drop(master.send(MasterMessage::Solution)));
                } else {
                    board.next().for_each(|board| drop(master.send(MasterMessage::Board(board))));
                }
                let _ = master.send(MasterMessage::Done);
            }
            WorkerMessage::Stop => {
                let _ = master.send(MasterMessage::Stopped);
                break;
            }
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let root = Board::empty(setting.n)?;
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let found = runtime.block_on(runtime.spawn(lead(root)))?.ok_or("a worker has gone")?;
    let measured = Measured::since(began, solutions(setting.n).unwrap_or_default().max(1));
    check(found, setting.n)?;
    Ok(measured)
}
