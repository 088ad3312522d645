//! x
use std::rc::Rc;
use super::analyze::{Analyzer, scope::File, tree::Level};
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::session::Core;
pub fn plan(_: &Core, _: Analyzer<'_>, _: &Rc<File>, _: Level) -> Result<Plan> { Err(Error::unsupported("x")) }
