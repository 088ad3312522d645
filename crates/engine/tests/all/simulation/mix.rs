//! The mix of work and events that a seed is made of. A seed with a little of everything rarely
//! meets several things together. So most seeds have a few things, each much, and no two the same
//! ("swarm testing": Groce and others, 2012).

use crate::common::Rng;
use std::time::Duration;

/// The work of a client in a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Transfer,
    Sum,
    Lists,
    Draws,
    Tables,
    Wide,
    Keys,
    Families,
}

const WORK: [(Work, u64); 8] = [
    (Work::Transfer, 3),
    (Work::Sum, 1),
    (Work::Lists, 4),
    (Work::Draws, 1),
    (Work::Tables, 2),
    (Work::Wide, 2),
    (Work::Keys, 3),
    (Work::Families, 2),
];

/// An event that happens to an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Kill,
    /// The instance is killed while a write of it is in flight, which keeps its locks.
    KillWriting,
    LosePower,
    Stop,
    Freeze,
    Cut,
    Heal,
    Break,
    /// The device's writes, syncs or reads fail.
    IoError,
    FullDisk,
}

const EVENTS: [(Event, u64); 10] = [
    (Event::Kill, 6),
    (Event::KillWriting, 1),
    (Event::LosePower, 1),
    (Event::Stop, 2),
    (Event::Freeze, 2),
    (Event::Cut, 2),
    (Event::Heal, 2),
    (Event::Break, 3),
    (Event::IoError, 1),
    (Event::FullDisk, 1),
];

/// The mixes that a seed may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Any mix. Most have a few things, each much.
    Any,
    /// A mix with a little of everything.
    Even,
    /// A mix that reads and appends to lists. Each instance is on a machine of its own, and the
    /// instances are mostly cut off from each other. That shows what an instance does not know of
    /// another's commits.
    Cuts,
}

#[derive(Clone, Debug)]
pub struct Mix {
    work: [u64; WORK.len()],
    events: [u64; EVENTS.len()],
    /// Clients of each instance.
    pub clients: u64,
    /// The longest pause of a client between two transactions.
    pub think_us: u64,
    /// A client takes a granule over in one of so many transactions.
    pub remaster: u64,
    /// Before one in so many transactions, a client has the statement of another client of its
    /// instance cancelled.
    pub cancel: u64,
    /// Blocks in an instance's cache.
    pub frames: u64,
    /// How long a member that does not answer is waited for; none if instances are not guarded.
    pub misscount: Option<Duration>,
}

impl Mix {
    pub fn draw(rng: &mut Rng, choice: Choice) -> Mix {
        let mut of = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
        let clients = of(&[1, 2, 2, 3]);
        let think_us = of(&[200, 2_000, 2_000, 10_000]);
        let remaster = of(&[4, 15, 60]);
        let cancel = of(&[4, 30, 1_000]);
        let frames = of(&[96, 128, 128, 512]);
        let misscount = of(&[0, 0, 300, 1_500]);
        Mix {
            work: match choice {
                Choice::Cuts => WORK.map(|(work, _)| u64::from(work == Work::Lists)),
                _ => weights(rng, choice, WORK.map(|(_, w)| w)),
            },
            events: match choice {
                Choice::Cuts => EVENTS.map(|(event, _)| of_cuts(event)),
                _ => weights(rng, choice, EVENTS.map(|(_, w)| w)),
            },
            clients,
            think_us,
            remaster,
            cancel,
            frames,
            misscount: (misscount > 0).then(|| Duration::from_millis(misscount)),
        }
    }

    pub fn work(&self, rng: &mut Rng) -> Work {
        WORK[pick(rng, &self.work)].0
    }

    pub fn event(&self, rng: &mut Rng) -> Event {
        EVENTS[pick(rng, &self.events)].0
    }
}

/// How often an event happens in [`Choice::Cuts`].
fn of_cuts(event: Event) -> u64 {
    match event {
        Event::Cut => 5,
        Event::Heal => 3,
        Event::Kill => 1,
        _ => 0,
    }
}

fn weights<const N: usize>(rng: &mut Rng, choice: Choice, usual: [u64; N]) -> [u64; N] {
    if choice == Choice::Even || rng.one_in(3) {
        return usual;
    }
    let drawn = usual.map(|w| w * [0, 0, 1, 2, 8][rng.below(5) as usize]);
    match drawn.iter().sum() {
        0 => usual,
        1.. => drawn,
    }
}

/// A position, drawn by weight.
fn pick(rng: &mut Rng, weights: &[u64]) -> usize {
    let mut n = rng.below(weights.iter().sum());
    for (at, &w) in weights.iter().enumerate() {
        if n < w {
            return at;
        }
        n -= w;
    }
    unreachable!("invariant: the number is below the sum of the weights")
}
