//! The problems of the Savina benchmarks, without the benchmarks: what the answers are compared with must itself be
//! right.

// Most of it is for the benchmarks.
#[allow(dead_code)]
#[path = "../benches/savina/problems/mod.rs"]
mod problems;

use self::problems::bank::{self, ACCOUNTS, OPENING, Transfer, Transfers};
use self::problems::barber::{Arrival, Entered, Room, Street};
use self::problems::philosophers::Table;
use self::problems::queens::{self, Board};
use self::problems::sieve::{self, Filter, Sifted};
use self::problems::trapezoid::{self, Share};
use self::problems::tree::{self, CHILDREN, Grant, Part};

#[test]
fn an_amount_goes_to_an_account_with_a_higher_number() {
    let mut stream = Transfers::new();
    for _ in 0..10_000 {
        let Transfer { from, to, amount } = stream.next();
        assert!(from < to && from < 800 && to < ACCOUNTS && (1..=1_000).contains(&amount));
    }
}

#[test]
fn an_amount_that_was_lost_or_went_astray_is_seen() {
    let mut balances = vec![OPENING; ACCOUNTS];
    assert_eq!(bank::check(&balances, 0), Ok(()));
    balances[7] -= 1;
    assert!(bank::check(&balances, 0).unwrap_err().starts_with("the sum of all balances: 999999999,"));
    balances[8] += 1;
    assert!(bank::check(&balances, 0).unwrap_err().starts_with("the balances, number 7: 999999,"));
}

#[test]
fn no_two_neighbours_eat_at_once() {
    let mut table = Table::default();
    assert!(table.is_served(0) && table.is_served(2));
    assert!(!table.is_served(1) && !table.is_served(3) && !table.is_served(19));
    table.has_eaten(0);
    assert!(!table.is_served(1) && table.is_served(19));
    assert_eq!((table.meals()[0], table.meals()[2]), (1, 0));
}

#[test]
fn the_first_is_served_a_thousand_wait_and_the_next_is_turned_away() {
    let mut room = Room::new();
    assert!(matches!(room.enter(0), Entered::Served(0)));
    assert!((1..=1_000).all(|customer| matches!(room.enter(customer), Entered::Waits(_))));
    assert!(matches!(room.enter(0), Entered::Full(0)));
    assert_eq!(room.turned_away(), 1);
    assert_eq!(room.next(), Some(1));
    assert!(matches!(room.enter(0), Entered::Waits(_)));
    assert_eq!(std::iter::from_fn(|| room.next()).count(), 1_000);
    assert!(matches!(room.enter(7), Entered::Served(7)));
}

#[test]
fn who_comes_back_goes_before_who_is_new_and_nobody_is_forgotten() {
    let mut street = Street::new(2);
    assert!(matches!(street.next(), Some(Arrival::New)));
    street.came_back('a');
    assert!(street.has_more() && matches!(street.next(), Some(Arrival::Again('a'))));
    assert!(matches!(street.next(), Some(Arrival::New)) && street.next().is_none() && !street.has_more());
    street.was_served();
    assert_eq!(street.result(), None);
    street.was_served();
    assert_eq!(street.result(), Some(1));
}

#[test]
fn crossing_out_finds_as_many_primes_as_is_known() {
    assert_eq!([1, 2, 3, 10, 1_000, 100_000].map(sieve::count), [0, 1, 2, 4, 168, 9_592]);
}

#[test]
fn a_full_filter_passes_on_what_it_does_not_divide() {
    let mut filter = Filter::new(2);
    for number in sieve::candidates(7_919) {
        assert_ne!(filter.sift(number), Sifted::Passed);
    }
    assert_eq!(filter.primes(), 1_000);
    assert_eq!([7_921, 7_927].map(|number| filter.sift(number)), [Sifted::Divided, Sifted::Passed]);
}

#[test]
fn there_are_as_many_ways_to_place_queens_as_is_known() {
    for size in 1..=9 {
        let mut found = 0;
        Board::empty(size).unwrap().solve(&mut || found += 1);
        assert_eq!(queens::check(found, size), Ok(()));
    }
    assert_eq!((queens::solutions(8), queens::solutions(12)), (Some(92), Some(14_200)));
    assert!(Board::empty(0).is_err() && Board::empty(17).is_err());
}

#[test]
fn the_shares_add_up_to_an_area_that_is_near_enough() {
    for pieces in [1_000, 10_001] {
        let area: f64 = (0..trapezoid::WORKERS).map(|worker| Share::of(worker, pieces).area()).sum();
        assert_eq!(trapezoid::check(area, pieces), Ok(()));
        assert!(trapezoid::check(area + 0.1, pieces).is_err());
    }
}

#[test]
fn the_tree_does_not_die_young_and_its_work_is_as_drawn() {
    for most in [5_000, 200_000] {
        let Part { actors, work } = tree::size(most);
        assert!(actors + CHILDREN as u64 > most && actors <= most, "{actors} of {most}");
        let mean = work as f64 / actors as f64;
        assert!((mean - 500.0).abs() < 10.0, "{mean}");
    }
}

#[test]
fn the_urgent_child_is_visited_first_and_none_is_left_out() {
    let order = |urgent| Grant { work: 1, urgent }.order().collect::<Vec<_>>();
    assert_eq!(order(None), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(order(Some(7)), [7, 0, 1, 2, 3, 4, 5, 6, 8, 9]);
}
