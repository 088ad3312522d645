//! Calls of functions that users have defined, chosen among their overloads.

use std::sync::Arc;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::call::conversion_cost;
use super::{Binder, ParamTypes, Scope, Typed, names};
use crate::dict::Function;
use crate::dict::function::Volatility;
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::{UserFunc, overloads};
use crate::expr::{Expr, Func};
use crate::parse;
use crate::types::SqlType;

/// The arguments of a call: those by place, then those by name.
struct Given {
    placed: Vec<Typed>,
    named: Vec<(String, Typed)>,
}

/// A function that could be meant: what each of its arguments is given (the number of a given one),
/// what that costs, and how many defaults it takes.
struct Candidate {
    function: Arc<Function>,
    taken: Vec<Option<usize>>,
    cost: usize,
    defaults: usize,
}

impl Given {
    fn all(&self) -> impl Iterator<Item = &Typed> {
        self.placed.iter().chain(self.named.iter().map(|(_, t)| t))
    }

    /// As messages show them.
    fn types(&self) -> String {
        let placed = self.placed.iter().map(|a| a.ty.name().to_string());
        let named = self.named.iter();
        let named = named.map(|(name, a)| format!("{name} => {}", a.ty.name()));
        placed.chain(named).collect::<Vec<_>>().join(", ")
    }
}

impl Binder<'_> {
    /// A call of a user's function; `None`: no function of users is meant.
    pub(super) fn user_call(
        &self,
        name: &names::Qualified,
        f: &ast::Function,
    ) -> Result<Option<Typed>> {
        let Some(dict) = self.params.sight.dict() else {
            return Ok(None);
        };
        if !dict.has_function_named(&name.name) {
            return Ok(None);
        }
        let functions = dict.functions_named(name.schema.as_deref(), &name.name);
        if functions.is_empty() {
            return Ok(None);
        }
        let given = self.given(f)?;
        let builtin = self.builtin_cost(name, &given);
        let mut candidates: Vec<Candidate> = functions
            .into_iter()
            .filter_map(|function| candidate(function, &given))
            .collect();
        let best = candidates.iter().map(|c| c.cost).min();
        match (best, builtin) {
            (None, Some(_)) => return Ok(None),
            // What PostgreSQL brings itself comes first on every path.
            (Some(best), Some(builtin)) if builtin <= best => return Ok(None),
            (None, None) if !overloads(&name.name).is_empty() => return Ok(None),
            (None, None) => return Err(no_function(name, &given)),
            (Some(best), _) => candidates.retain(|c| c.cost == best),
        }
        let fewest = candidates.iter().map(|c| c.defaults).min().unwrap_or(0);
        candidates.retain(|c| c.defaults == fewest);
        prefer_text(&mut candidates, &given);
        match candidates.as_slice() {
            [one] => self.user_called(one, given).map(Some),
            _ => Err(Error::new(
                "42725",
                format!("function {name}({}) is not unique", given.types()),
            )
            .hint("Could not choose a best candidate function. You might need to add explicit type casts.")),
        }
    }

    fn given(&self, f: &ast::Function) -> Result<Given> {
        let refused = || Error::unsupported(format!("{f}"));
        let plain = f.over.is_none() && f.filter.is_none() && f.within_group.is_empty();
        if !plain || f.null_treatment.is_some() {
            return Err(refused());
        }
        let mut given = Given {
            placed: Vec::new(),
            named: Vec::new(),
        };
        let list = match &f.args {
            FunctionArguments::None => return Ok(given),
            FunctionArguments::List(l)
                if l.duplicate_treatment.is_none() && l.clauses.is_empty() =>
            {
                l
            }
            _ => return Err(refused()),
        };
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) if given.named.is_empty() => {
                    given.placed.push(self.expr(e)?);
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(_)) => {
                    let message = "positional argument cannot follow named argument";
                    return Err(Error::new("42601", message));
                }
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } => given.named.push((names::ident(name), self.expr(e)?)),
                _ => return Err(refused()),
            }
        }
        Ok(given)
    }

    /// What the best built-in function of the name costs.
    fn builtin_cost(&self, name: &names::Qualified, given: &Given) -> Option<usize> {
        if name.schema.as_deref().is_some_and(|s| s != "pg_catalog") || !given.named.is_empty() {
            return None;
        }
        let signatures = overloads(&name.name);
        let costs = signatures.iter().filter_map(|s| {
            let args = given.placed.iter().zip(s.args);
            let each = args.map(|(arg, to)| conversion_cost(arg.ty, *to));
            let cost: Option<usize> = each.sum();
            cost.filter(|_| s.args.len() == given.placed.len())
        });
        costs.min()
    }

    fn user_called(&self, chosen: &Candidate, given: Given) -> Result<Typed> {
        let function = &chosen.function;
        if function.is_trigger() {
            return Err(Error::new(
                "0A000",
                "trigger functions can only be called as triggers",
            ));
        }
        self.params.sight.note(function);
        let all: Vec<&Typed> = given.all().collect();
        let mut args = Vec::with_capacity(function.arguments.len());
        for (argument, taken) in function.arguments.iter().zip(&chosen.taken) {
            let value = match taken {
                Some(n) => all[*n].clone(),
                None => self.default_of(argument.default.as_deref())?,
            };
            args.push(
                self.coerce(value, argument.ty(), -1, CastContext::Implicit)?
                    .expr,
            );
        }
        let func = Func::User(UserFunc {
            oid: function.oid,
            volatile: function.volatility == Volatility::Volatile,
            strict: function.strict,
        });
        let result = function.result_type().base();
        Ok(Typed::new(Expr::Call(func, args), result))
    }

    fn default_of(&self, text: Option<&str>) -> Result<Typed> {
        let text = text.ok_or_else(|| Error::internal("an argument without a value"))?;
        let scope = Scope::default();
        let params: ParamTypes = self.params.of_definition();
        let binder = Binder::new(&scope, &params, "DEFAULT");
        let value = binder.expr(&parse::expression(text)?)?;
        self.params.note_called(&params);
        Ok(value)
    }
}

fn candidate(function: Arc<Function>, given: &Given) -> Option<Candidate> {
    let count = function.arguments.len();
    let mut taken: Vec<Option<usize>> = vec![None; count];
    if given.placed.len() > count {
        return None;
    }
    for (at, slot) in taken.iter_mut().enumerate().take(given.placed.len()) {
        *slot = Some(at);
    }
    for (n, (name, _)) in given.named.iter().enumerate() {
        let at = function.arguments.iter().position(|a| a.name == *name)?;
        if taken[at].replace(given.placed.len() + n).is_some() {
            return None;
        }
    }
    let all: Vec<&Typed> = given.all().collect();
    let (mut cost, mut defaults) = (0, 0);
    for (argument, taken) in function.arguments.iter().zip(&taken) {
        match taken {
            Some(n) => {
                let ty = argument.ty();
                // Of a domain and its base type the latter is nearer.
                cost += conversion_cost(all[*n].ty, ty.base())? + usize::from(ty.is_domain());
            }
            None if argument.default.is_some() => defaults += 1,
            None => return None,
        }
    }
    Some(Candidate {
        function,
        taken,
        cost,
        defaults,
    })
}

/// Of several candidates for literals without a type, those that take a string.
fn prefer_text(candidates: &mut Vec<Candidate>, given: &Given) {
    if candidates.len() < 2 {
        return;
    }
    let all: Vec<&Typed> = given.all().collect();
    let takes_text = |c: &Candidate| {
        let mut each = c.function.arguments.iter().zip(&c.taken);
        each.all(|(argument, taken)| {
            taken.is_none_or(|n| all[n].ty != SqlType::Unknown || argument.ty().is_string())
        })
    };
    if candidates.iter().any(takes_text) {
        candidates.retain(takes_text);
    }
}

fn no_function(name: &names::Qualified, given: &Given) -> Error {
    let message = format!("function {name}({}) does not exist", given.types());
    Error::new("42883", message)
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
