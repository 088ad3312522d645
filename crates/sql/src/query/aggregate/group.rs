use std::sync::Arc;
use crate::query::run::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::{Group, Distinct};
use crate::session::Core;

pub struct GroupRun;
impl GroupRun {
    pub fn new(_: &Arc<Group>, _: bool) -> GroupRun { GroupRun }
}
impl Operator for GroupRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("GROUP BY")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("GROUP BY")) }
}
pub struct DistinctRun;
impl DistinctRun {
    pub fn new(_: &Arc<Distinct>, _: bool) -> DistinctRun { DistinctRun }
}
impl Operator for DistinctRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("DISTINCT")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("DISTINCT")) }
}
