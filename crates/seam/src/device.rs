//! What simulated devices, and mistakes planted for tests, ask of the simulation that their caller belongs to. Outside one devices take no time and never surprise, and no mistake is made.

/// One call of a device: takes a while, now and then a long one, and others go on meanwhile.
#[inline]
pub fn device() {
    #[cfg(debug_assertions)]
    crate::sim::device();
}

/// A number below `below`, drawn by the simulation's seed; none outside one.
#[inline]
pub fn drawn(below: u64) -> Option<u64> {
    #[cfg(debug_assertions)]
    if let Some(random) = crate::sim::random() {
        return Some(random % below);
    }
    let _ = below;
    None
}

/// Whether a simulation wants this mistake made: a test that does not find it proves nothing. Never outside one.
#[inline]
pub fn planted(mistake: &str) -> bool {
    #[cfg(debug_assertions)]
    if crate::sim::is_planted(mistake) {
        return true;
    }
    let _ = mistake;
    false
}
