use std::sync::Arc;
use crate::query::run::{Frame, Operator};
use crate::error::{Error, Result};
use crate::query::plan::Window;
use crate::session::Core;

pub struct WindowRun;
impl WindowRun {
    pub fn new(_: &Arc<Window>, _: bool) -> WindowRun { WindowRun }
}
impl Operator for WindowRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> { Err(Error::unsupported("OVER")) }
    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> { Err(Error::unsupported("OVER")) }
}
