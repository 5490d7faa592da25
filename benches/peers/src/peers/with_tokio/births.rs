//! Workloads that spawn tasks, on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting, check, memory};
use crate::ours::shape::{BATCH, CHILDREN, nodes, sum_of_leaves};
use crate::peers::{ENDS, REPORTS, tokio_runtime};

struct Hello;

/// Its drop shows that the task has ended.
struct Mayfly;

impl Drop for Mayfly {
    fn drop(&mut self) {
        REPORTS.strike();
    }
}

impl Mayfly {
    async fn live(self, mut inbox: UnboundedReceiver<Hello>) {
        inbox.recv().await;
    }
}

pub(crate) fn spawn(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    REPORTS.expect(setting.n);
    let mut left = setting.n;
    let began = Instant::now();
    let spawned = runtime.block_on(runtime.spawn(async move {
        let mut spawned = 0;
        while left > 0 {
            let batch = left.min(BATCH);
            for _ in 0..batch {
                let (child, inbox) = unbounded_channel();
                tokio::spawn(Mayfly.live(inbox));
                spawned += u64::from(child.send(Hello).is_ok());
            }
            left -= batch;
            yield_now().await;
        }
        spawned
    }))?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n);
    check("tasks that got their message", spawned, setting.n)?;
    Ok(measured)
}

async fn wait(mut inbox: UnboundedReceiver<Hello>) {
    while inbox.recv().await.is_some() {
        REPORTS.strike();
    }
    ENDS.strike();
}

pub(crate) fn idle(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    REPORTS.expect(setting.n);
    ENDS.expect(setting.n);
    let (before, mut left) = (memory("VmRSS"), setting.n);
    let began = Instant::now();
    // The program must keep the senders. Otherwise the tasks would end.
    let waiting = runtime.block_on(runtime.spawn(async move {
        let mut waiting = Vec::with_capacity(left as usize);
        while left > 0 {
            let batch = left.min(BATCH);
            for _ in 0..batch {
                let (child, inbox) = unbounded_channel();
                tokio::spawn(wait(inbox));
                let _ = child.send(Hello);
                waiting.push(child);
            }
            left -= batch;
            yield_now().await;
        }
        waiting
    }))?;
    REPORTS.wait()?;
    let measured = Measured::since(began, setting.n).with_actors(before, memory("VmRSS"), setting.n);
    drop(waiting);
    ENDS.wait()?;
    Ok(measured)
}

/// A task of the tree. It represents `leaves` numbers, starting with `first`, and sends their sum to its parent.
fn node(parent: UnboundedSender<u64>, first: u64, leaves: u64) {
    tokio::spawn(async move {
        let mut sum = first;
        if leaves > 1 {
            let (me, mut inbox) = unbounded_channel();
            let leaves = leaves / CHILDREN;
            for child in 0..CHILDREN {
                node(me.clone(), first + child * leaves, leaves);
            }
            sum = 0;
            for _ in 0..CHILDREN {
                sum += inbox.recv().await.unwrap_or_default();
            }
        }
        let _ = parent.send(sum);
    });
}

pub(crate) fn skynet(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let (root, mut inbox) = unbounded_channel();
    let began = Instant::now();
    {
        let _inside = runtime.enter();
        node(root, 0, setting.n);
    }
    let sum = inbox.blocking_recv().ok_or("the root has gone")?;
    let measured = Measured::since(began, nodes(setting.n));
    check("the sum", sum, sum_of_leaves(setting.n))?;
    Ok(measured)
}
