//! Random weather: all promises of the machine hold in it.

use std::time::Duration;

use super::simulated_link::{MILLISECOND, SECOND, Weather, World, identity};
use super::*;
use crate::counts::counts;

fn seeds() -> u64 {
    counts(1_000, 100_000)
}

fn length(world: &mut World) -> usize {
    match world.dice.below(40) {
        0 => 33_000 + world.dice.below(200_000) as usize,
        1 => world.dice.below(33_000) as usize,
        2 => (32 << 10) + world.dice.below(3) as usize - 1,
        _ => world.dice.below(200) as usize,
    }
}

#[derive(Default)]
struct Counts {
    ups: usize,
    downs: usize,
    in_doubt: usize,
    delivered: usize,
}

/// One world: 20 to 40 s of weather and traffic, then a quiet time in which everything is decided.
fn torture(seed: u64, counts: &mut Counts) {
    let mut world = World::new(seed, Weather::default());
    let rate = |world: &mut World| if world.dice.once_in(2) { 20 + world.dice.below(300) } else { 0 };
    world.weather = Weather {
        delay: Duration::from_micros(world.dice.below(20_000)),
        jitter: Duration::from_micros(world.dice.below(5_000)),
        lose: rate(&mut world),
        repeat: rate(&mut world),
        late: rate(&mut world),
        tear: rate(&mut world),
    };
    if world.dice.once_in(4) {
        world.nodes[0].decoding = Duration::from_millis(world.dice.below(200));
    }
    for step in 0..100 {
        let who = world.dice.below(2) as usize;
        match world.dice.below(60) {
            0 => world.cut[who] = true,
            1..4 => world.cut = [false; 2],
            4 => world.nodes[who].paused_until = world.now + MILLISECOND * world.dice.below(4000) as u32,
            5 => world.restart(who, identity(["a", "b"][who], 100 + step)),
            _ => {}
        }
        for _ in 0..world.dice.below(20) {
            let who = world.dice.below(2) as usize;
            let class = if world.dice.once_in(5) { Class::Control } else { Class::Message };
            let (sender, length) = (world.dice.below(6), length(&mut world));
            world.offer(who, class, sender, length);
        }
        let time = MILLISECOND * [1, 20, 300][world.dice.below(3) as usize] * world.dice.below(8) as u32;
        world.run_for(time);
    }
    // Copies that are 30 s late, refusals and pauses are over.
    let quiet = if world.weather.late > 0 { 45 } else { 15 };
    world.weather = Weather { delay: MILLISECOND, ..Weather::default() };
    world.cut = [false; 2];
    world.run_for(SECOND * quiet);
    assert!(world.are_up(), "the nodes do not find each other");
    assert!(world.nodes.iter().all(|node| node.peer.is_drained()));
    world.check_accounts();
    for node in &world.nodes {
        counts.ups += node.ups;
        counts.downs += node.downs.len();
        counts.delivered += node.delivered.len();
    }
    counts.in_doubt += world.in_doubt();
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order_in_any_weather() {
    let mut counts = Counts::default();
    for seed in 0..seeds() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| torture(seed, &mut counts)));
        assert!(result.is_ok(), "seed {seed}");
    }
    // The weather has done something.
    assert!(counts.downs as u64 > seeds() && counts.in_doubt > 0 && counts.ups > counts.downs);
    assert!(counts.delivered as u64 > 100 * seeds());
}
