//! The life that begins: its incarnation, and where its clock starts.

use super::HeldFiles;
use crate::Result;
use block::Scn;
use redo::{Clock, ThreadEnd};
use std::sync::Arc;
use storage::ThreadState;

/// A life of the instance that is named in the control file.
pub(super) struct NextLife {
    pub incarnation: u32,
    pub clock: Arc<Clock>,
}

/// Makes the new incarnation and the clock's floor durable. The floor is above every SCN that any
/// instance may have used: so is the ceiling in the control file, and so is the SCN after the
/// thread's last one.
pub(super) fn make_durable(of: &HeldFiles<'_>, end: &ThreadEnd) -> Result<NextLife> {
    let incarnation = incarnation_after(of.info.incarnation, end.incarnation);
    let thread = of.thread();
    let (mut floor, mut ceiling) = (Scn::ZERO, Scn::ZERO);
    of.control.update(|c| {
        // Instances that are up may have raised the ceiling just now.
        (floor, ceiling) = clock_after(Scn(c.scn_ceiling), end.max_scn);
        c.scn_ceiling = ceiling.0;
        if let Some(t) = c.thread_mut(thread) {
            t.state = ThreadState::Open;
            t.incarnation = incarnation;
        }
    })?;
    Ok(NextLife {
        incarnation,
        clock: Arc::new(Clock::new(floor, ceiling)),
    })
}

/// The incarnation of the next life: above the one in the control file, and above the one in the
/// log. A life that was cut off between naming its incarnation and logging leaves the control
/// file's one ahead.
fn incarnation_after(in_control_file: u32, in_log: u32) -> u32 {
    in_control_file.max(in_log) + 1
}

/// Floor and ceiling of the new life's clock.
fn clock_after(ceiling: Scn, last_in_log: Scn) -> (Scn, Scn) {
    let floor = ceiling.0.max(last_in_log.0 + 1);
    (Scn(floor), Scn(floor + Clock::CEILING_STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_told_from_all_before_and_begins_above_what_they_have_used() {
        assert_eq!(incarnation_after(3, 2), 4);
        assert_eq!(incarnation_after(2, 3), 4);
        let step = Clock::CEILING_STEP;
        assert_eq!(clock_after(Scn(500), Scn(7)), (Scn(500), Scn(500 + step)));
        assert_eq!(clock_after(Scn(500), Scn(500)), (Scn(501), Scn(501 + step)));
    }
}
