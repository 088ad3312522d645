use std::sync::Arc;
use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::Keep;
use crate::session::Core;

pub struct KeepRun;
impl KeepRun {
    pub fn new(_: &Arc<Keep>, _: bool) -> KeepRun { KeepRun }
}
impl Operator for KeepRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("Keep")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("Keep")) }
}
