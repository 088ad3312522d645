use std::sync::Arc;
use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::{SharedScan, With, Shared};
use crate::session::Core;
use block::value::Datum;

/// A WITH query under way.
pub struct SharedRun;
impl SharedRun {
    pub fn new(_: &Arc<Shared>, _: &[Datum], _: engine::Snapshot, _: bool) -> SharedRun { SharedRun }
}

pub struct SharedScanRun;
impl SharedScanRun {
    pub fn new(_: &Arc<SharedScan>) -> SharedScanRun { SharedScanRun }
}
impl Operator for SharedScanRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("WITH")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("WITH")) }
}
pub struct WithRun;
impl WithRun {
    pub fn new(_: &Arc<With>, _: bool) -> WithRun { WithRun }
}
impl Operator for WithRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("WITH")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("WITH")) }
}
