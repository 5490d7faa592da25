//! Worlds of simulations that are driven within traced steps.

use procession::simulation::Simulation;

use super::*;

/// A step runs a whole simulation, whose messages are in its trace. Then it goes on in its own span.
#[test]
fn a_step_that_drives_a_world_keeps_its_span() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let to = runtime.spawn(recorder::<u32>(&seen)).unwrap().address();
    let in_world = traces.clone();
    let drives = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(number) => {
                    let traces = in_world.clone();
                    Simulation::new(move |world| {
                        let runtime = world.start(Runtime::builder().propagate(traces.clone()))?;
                        runtime.send(runtime.spawn(sink::<&str>())?.address(), "in the world")?;
                        world.run()
                    })
                    .seeds(0..1)
                    .threads(1)
                    .check();
                    out.send(to, number);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let drives = runtime.spawn(drives).unwrap();
    let root = traces.root(|| runtime.send(drives.address(), 7).unwrap());
    until("it has sent it on", || seen.len() == 1);
    rest(&runtime);
    let step = only_child(&traces, root);
    assert_eq!(step.end, "succeeded");
    let mut below: Vec<_> = traces.children(step.number).into_iter().map(|span| span.event).collect();
    below.sort();
    // The seed is run several times.
    below.dedup();
    assert_eq!(below, ["&str", "u32"]);
    runtime.terminate(drives.pid()).unwrap();
    join(&drives);
    close(runtime, &traces);
}

/// In a world, a step that may block has others stepped on its thread while it waits.
#[test]
fn a_step_that_waits_in_a_world_keeps_its_span() {
    Simulation::new(|world| {
        let traces = Traces::new();
        let runtime = world.start(Runtime::builder().propagate(traces.clone()))?;
        let echo = runtime.spawn(echo())?.process_ref();
        let mut may_block = false;
        let waits = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            may_block = !may_block;
            if may_block {
                return Ok(Step::Blocking);
            }
            for event in events {
                match event {
                    Event::Message(7) => {
                        assert_eq!(echo.ask(|reply| reply, SECOND).wait().unwrap(), 1);
                        let me = out.pid().typed::<u32>();
                        out.send(me, 0);
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        });
        let waits = runtime.spawn(waits)?;
        let root = traces.root(|| runtime.send(waits.address(), 7).unwrap());
        world.run()?;
        let step = only_child(&traces, root);
        assert_eq!((step.end.as_str(), step.pid), ("succeeded", Some(waits.pid())));
        let below = traces.children(step.number);
        let of_echo = below.iter().filter(|span| span.pid != Some(waits.pid())).count();
        assert_eq!((of_echo, below.len()), (1, 2), "{below:?}");
        assert!(traces.spans().iter().all(|span| span.parent.is_none() || span.end == "succeeded"));
        Ok(())
    })
    .seeds(0..20)
    .check();
}
