//! What simulated devices, and mistakes planted for tests, ask of their caller's simulation.
//! Outside a simulation devices take no time and never surprise, and no mistake is made.

/// Does one call of a device. The call takes a while, now and then a long one, and other threads go
/// on meanwhile.
#[inline]
pub fn device() {
    #[cfg(debug_assertions)]
    crate::sim::device();
}

/// A number below `below`, drawn by the simulation's seed. None outside a simulation.
#[inline]
pub fn drawn(below: u64) -> Option<u64> {
    #[cfg(debug_assertions)]
    if let Some(random) = crate::sim::random() {
        return Some(random % below);
    }
    let _ = below;
    None
}

/// Whether a simulation wants this mistake made: a test that does not find it proves nothing. False
/// outside a simulation.
#[inline]
pub fn planted(mistake: &str) -> bool {
    #[cfg(debug_assertions)]
    if crate::sim::is_planted(mistake) {
        return true;
    }
    let _ = mistake;
    false
}
