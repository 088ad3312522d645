use std::sync::Arc;
use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::HashJoin;
use crate::session::Core;

pub struct HashRun;
impl HashRun {
    pub fn new(_: &Arc<HashJoin>, _: bool) -> HashRun { HashRun }
}
impl Operator for HashRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("HashJoin")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("HashJoin")) }
}
