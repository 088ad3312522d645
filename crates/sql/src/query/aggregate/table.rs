//! The groups of one grouping set that are in memory.

use std::collections::HashMap;

use block::value::Datum;

use super::State;
use crate::exec::sort::size;

/// Bytes of a place in the index, beside the key.
const ENTRY: usize = 2 * (size_of::<Box<[u8]>>() + size_of::<u32>());

/// Groups in the order in which they appeared.
pub struct Table {
    index: HashMap<Box<[u8]>, u32>,
    /// Of each group its keys, and what follows from them.
    values: Vec<Datum>,
    states: Vec<State>,
    /// How many of these a group has.
    values_each: usize,
    states_each: usize,
}

impl Table {
    pub fn new(values_each: usize, states_each: usize) -> Table {
        Table {
            index: HashMap::new(),
            values: Vec::new(),
            states: Vec::new(),
            values_each,
            states_each,
        }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.index.get(key).map(|at| *at as usize)
    }

    /// Adds a group; returns its place, and the bytes that it takes.
    pub fn insert(
        &mut self,
        key: &[u8],
        values: impl IntoIterator<Item = Datum>,
        states: impl IntoIterator<Item = State>,
    ) -> (usize, usize) {
        let at = self.index.len();
        let (values_from, states_from) = (self.values.len(), self.states.len());
        self.values.extend(values);
        self.states.extend(states);
        // Memory bounds their number to far less.
        self.index.insert(key.into(), at as u32);
        let values = self.values[values_from..].iter().map(size).sum::<usize>();
        let state_size = |s: &State| size_of::<State>() + s.heap_size();
        let states = self.states[states_from..]
            .iter()
            .map(state_size)
            .sum::<usize>();
        (at, key.len() + ENTRY + values + states)
    }

    /// The state of one of a group's aggregates.
    pub fn state(&mut self, at: usize, number: usize) -> &mut State {
        &mut self.states[at * self.states_each + number]
    }

    /// A group's values, which are given once, and its states.
    pub fn group(&mut self, at: usize) -> (&mut [Datum], &mut [State]) {
        let (values, states) = (at * self.values_each, at * self.states_each);
        (
            &mut self.values[values..values + self.values_each],
            &mut self.states[states..states + self.states_each],
        )
    }

    /// The keys in order, with the groups' places. The table no longer finds them.
    pub fn take_keys(&mut self) -> Vec<(Box<[u8]>, usize)> {
        let mut keys: Vec<_> = self.index.drain().map(|(k, at)| (k, at as usize)).collect();
        keys.sort_unstable();
        keys
    }
}
