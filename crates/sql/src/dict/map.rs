//! An ordered map of which copies share what they have in common.
//!
//! A copy costs one reference, and a change of a copy the nodes on the way to it: so the picture
//! after a change of definitions costs what was changed, however many definitions there are.
//!
//! It is a weight-balanced tree (Adams; the parameters are Hirai's and Yamamoto's, with which every
//! insertion and removal keeps the balance). **Invariants.** A node's `size` is the number of nodes
//! below and including it; of two siblings none has more than [`DELTA`] times the other's weight.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::mem;
use std::sync::Arc;

/// How much heavier a side may be.
const DELTA: usize = 3;
/// From which weight of the inner grandchild on, against the outer, one rotation does not do.
const RATIO: usize = 2;

pub struct Map<K, V> {
    root: Link<K, V>,
}

type Link<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone)]
struct Node<K, V> {
    key: K,
    value: V,
    size: usize,
    left: Link<K, V>,
    right: Link<K, V>,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Map {
            root: self.root.clone(),
        }
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Map { root: None }
    }
}

fn size<K, V>(link: &Link<K, V>) -> usize {
    link.as_ref().map_or(0, |n| n.size)
}

fn weight<K, V>(link: &Link<K, V>) -> usize {
    size(link) + 1
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn len(&self) -> usize {
        size(&self.root)
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut link = self.root.as_deref();
        while let Some(node) = link {
            link = match key.cmp(node.key.borrow()) {
                Ordering::Less => node.left.as_deref(),
                Ordering::Greater => node.right.as_deref(),
                Ordering::Equal => return Some(&node.value),
            };
        }
        None
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Puts a value, and gives back the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        insert(&mut self.root, key, value)
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // The way to a key that is not there is not copied.
        match self.contains_key(key) {
            true => remove(&mut self.root, key),
            false => None,
        }
    }

    /// In the order of the keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { path: Vec::new() };
        iter.descend(&self.root);
        iter
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

pub struct Iter<'m, K, V> {
    /// The nodes that come next, the nearest last; what is left of each is over.
    path: Vec<&'m Node<K, V>>,
}

impl<'m, K, V> Iter<'m, K, V> {
    fn descend(&mut self, mut link: &'m Link<K, V>) {
        while let Some(node) = link {
            self.path.push(node);
            link = &node.left;
        }
    }
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.path.pop()?;
        self.descend(&node.right);
        Some((&node.key, &node.value))
    }
}

fn insert<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V) -> Option<V> {
    let Some(node) = link else {
        *link = Some(Arc::new(Node {
            key,
            value,
            size: 1,
            left: None,
            right: None,
        }));
        return None;
    };
    let node = Arc::make_mut(node);
    let old = match key.cmp(&node.key) {
        Ordering::Equal => return Some(mem::replace(&mut node.value, value)),
        Ordering::Less => insert(&mut node.left, key, value),
        Ordering::Greater => insert(&mut node.right, key, value),
    };
    if old.is_none() {
        node.balance();
    }
    old
}

fn remove<K: Ord + Clone + Borrow<Q>, Q: Ord + ?Sized, V: Clone>(
    link: &mut Link<K, V>,
    key: &Q,
) -> Option<V> {
    let node = Arc::make_mut(link.as_mut()?);
    let old = match key.cmp(node.key.borrow()) {
        Ordering::Less => remove(&mut node.left, key),
        Ordering::Greater => remove(&mut node.right, key),
        Ordering::Equal => {
            let old = node.value.clone();
            match (node.left.is_some(), node.right.is_some()) {
                (_, false) => *link = node.left.take(),
                (false, true) => *link = node.right.take(),
                (true, true) => {
                    if let Some((key, value)) = pop_first(&mut node.right) {
                        (node.key, node.value) = (key, value);
                    }
                    node.balance();
                }
            }
            return Some(old);
        }
    };
    node.balance();
    old
}

fn pop_first<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    let node = Arc::make_mut(link.as_mut()?);
    if let Some(first) = pop_first(&mut node.left) {
        node.balance();
        return Some(first);
    }
    let first = (node.key.clone(), node.value.clone());
    *link = node.right.take();
    Some(first)
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    /// After one node more or less on a side.
    fn balance(&mut self) {
        let (left, right) = (weight(&self.left), weight(&self.right));
        if right > DELTA * left {
            if let Some(child) = self.right.as_mut()
                && weight(&child.left) >= RATIO * weight(&child.right)
            {
                Arc::make_mut(child).rotate_right();
            }
            self.rotate_left();
        } else if left > DELTA * right {
            if let Some(child) = self.left.as_mut()
                && weight(&child.right) >= RATIO * weight(&child.left)
            {
                Arc::make_mut(child).rotate_left();
            }
            self.rotate_right();
        } else {
            self.count();
        }
    }

    fn count(&mut self) {
        self.size = size(&self.left) + size(&self.right) + 1;
    }

    /// The right child comes into this place.
    fn rotate_left(&mut self) {
        let Some(mut child) = self.right.take() else {
            return;
        };
        let node = Arc::make_mut(&mut child);
        self.right = node.left.take();
        self.count();
        mem::swap(self, node);
        self.left = Some(child);
        self.count();
    }

    /// The left child comes into this place.
    fn rotate_right(&mut self) {
        let Some(mut child) = self.left.take() else {
            return;
        };
        let node = Arc::make_mut(&mut child);
        self.left = node.right.take();
        self.count();
        mem::swap(self, node);
        self.right = Some(child);
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    /// The height of a balanced tree, and that sizes and weights are what they are to be.
    fn check<K, V>(link: &Link<K, V>) -> usize {
        let Some(node) = link else { return 0 };
        let (left, right) = (weight(&node.left), weight(&node.right));
        assert_eq!(node.size, left + right - 1);
        assert!(left <= DELTA * right && right <= DELTA * left);
        1 + check(&node.left).max(check(&node.right))
    }

    fn is(map: &Map<u16, u32>, expected: &BTreeMap<u16, u32>) {
        check(&map.root);
        assert!(map.iter().eq(expected.iter()));
    }

    proptest! {
        #[test]
        fn a_map_is_what_a_map_is_and_copies_stay(
            steps in prop::collection::vec((any::<bool>(), 0u16..200, any::<u32>()), 0..400)
        ) {
            let (mut map, mut expected) = (Map::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (n, (put, key, value)) in steps.into_iter().enumerate() {
                match put {
                    true => prop_assert_eq!(map.insert(key, value), expected.insert(key, value)),
                    false => prop_assert_eq!(map.remove(&key), expected.remove(&key)),
                }
                prop_assert_eq!(map.get(&key), expected.get(&key));
                if n % 50 == 0 {
                    copies.push((map.clone(), expected.clone()));
                }
            }
            is(&map, &expected);
            for (map, expected) in &copies {
                is(map, expected);
            }
        }
    }

    #[test]
    fn keys_in_order_make_no_list() {
        let mut map = Map::default();
        for n in 0..10_000 {
            map.insert(n, n);
        }
        assert!(check(&map.root) <= 2 * 14);
        for n in 0..9_900 {
            map.remove(&n);
        }
        assert!(check(&map.root) <= 2 * 7);
        assert_eq!(map.get(&9_999), Some(&9_999));
    }
}
