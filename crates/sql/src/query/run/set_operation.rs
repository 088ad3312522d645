use std::sync::Arc;
use super::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::SetOperation;
use crate::session::Core;

pub struct SetRun;
impl SetRun {
    pub fn new(_: &Arc<SetOperation>, _: bool) -> SetRun { SetRun }
}
impl Operator for SetRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("SetOperation")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("SetOperation")) }
}
