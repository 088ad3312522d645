//! Calls of functions and procedures that users have defined, chosen among their overloads.

use std::sync::Arc;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::call::without_out_parameters;
use super::{Binder, ParamTypes, Scope, Typed, names};
use super::{common_type, open_call};
use crate::dict::Function;
use crate::dict::function::{Language, Mode, Volatility};
use crate::dict::open_type::OpenType;
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::{UserFunc, overloads};
use crate::expr::linked::{self, LinkedFunc};
use crate::expr::{Expr, Func};
use crate::parse;
use crate::parse::variadic::VARIADIC;
use crate::types::SqlType;
use crate::types::call_types::CallTypes;

/// The arguments of a call: those by place, then those by name.
struct Given {
    placed: Vec<Typed>,
    named: Vec<(String, Typed)>,
    /// The last of those by place is VARIADIC: an array of the last arguments.
    whole: bool,
}

/// A function that could be meant: what each of its arguments is given (the number of a given one),
/// what that costs, and how many defaults it takes.
struct Candidate {
    function: Arc<Function>,
    wanted: Vec<Wanted>,
    taken: Vec<Option<usize>>,
    /// Where the given arguments begin that the last argument takes as one array.
    spread: Option<usize>,
    cost: usize,
    defaults: usize,
}

/// What a call may give a function, or must.
struct Wanted {
    name: String,
    ty: SqlType,
    /// The call settles the type.
    open: Option<OpenType>,
    default: Option<String>,
    input: bool,
}

/// The arguments of a function; of a procedure what only goes out, too.
fn wanted(function: &Function, procedure: bool) -> Vec<Wanted> {
    let inputs = function.arguments.iter().map(|a| Wanted {
        name: a.name.clone(),
        ty: a.ty(),
        open: OpenType::of(a.type_oid),
        default: a.default.clone(),
        input: true,
    });
    if !procedure || function.parameters.is_empty() {
        return inputs.collect();
    }
    let mut inputs = inputs;
    let each = function
        .parameters
        .iter()
        .filter_map(|p| match p.mode.is_input() {
            true => inputs.next(),
            false => Some(Wanted {
                name: p.name.clone(),
                ty: p.ty(),
                open: None,
                default: None,
                input: false,
            }),
        });
    each.collect()
}

/// What an argument costs whose type the call settles: any other that fits is nearer.
const OPEN_COST: usize = 10;

/// A call whose function is known.
pub struct Called {
    /// With the types that the call has settled.
    pub function: Arc<Function>,
    pub args: Vec<Expr>,
    /// The types, if the function leaves some open.
    pub types: Option<CallTypes>,
}

/// What a call means.
enum Meant {
    Users(Box<Called>),
    /// No function of users; with the arguments, if they have been bound and are all placed.
    Other(Option<Vec<Typed>>),
}

/// What a call that gives one value means.
pub(super) enum Value {
    Users(Typed),
    /// No function of users; with the arguments, if they have been bound and are all placed.
    Other(Option<Vec<Typed>>),
}

impl Meant {
    fn users(self) -> Option<Called> {
        match self {
            Meant::Users(called) => Some(*called),
            Meant::Other(_) => None,
        }
    }
}

impl Given {
    /// The call is of no function of users.
    fn of_another(self) -> Meant {
        let plain = self.named.is_empty() && !self.whole;
        Meant::Other(plain.then_some(self.placed))
    }

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
    /// A call of a user's function that gives one value, if it means one.
    pub(super) fn user_call(&self, name: &names::Qualified, f: &ast::Function) -> Result<Value> {
        let called = match self.chosen(name, f, false)? {
            Meant::Users(called) => called,
            Meant::Other(args) => return Ok(Value::Other(args)),
        };
        match self.inlined(&called) {
            Some(value) => Ok(Value::Users(value)),
            None => self.value_of_call(*called).map(Value::Users),
        }
    }

    /// The user's function that a call means.
    pub fn function_meant(&self, f: &ast::Function) -> Result<Option<Arc<Function>>> {
        let name = names::Qualified::new(&f.name)?;
        let called = self.chosen(&name, f, false)?.users();
        Ok(called.map(|called| called.function))
    }

    /// The user's function that a call means, if users have one of its name that gives rows.
    pub fn user_rows(&self, name: &names::Qualified, f: &ast::Function) -> Result<Option<Called>> {
        let Some(dict) = self.params.sight.dict() else {
            return Ok(None);
        };
        if !dict.has_function_named(name) {
            return Ok(None);
        }
        let functions = dict.functions_meant(name);
        match functions.iter().any(|f| f.returns_set || f.gives_rows()) {
            true => Ok(self.chosen(name, f, false)?.users()),
            false => Ok(None),
        }
    }

    /// The procedure that CALL means.
    pub fn procedure_called(&self, name: &names::Qualified, f: &ast::Function) -> Result<Called> {
        if let Meant::Users(called) = self.chosen(name, f, true)? {
            return Ok(*called);
        }
        Err(no_procedure(name, &self.given(f)?))
    }

    /// The user's function that a call means, with what it is given.
    fn chosen(&self, name: &names::Qualified, f: &ast::Function, procedure: bool) -> Result<Meant> {
        let Some(dict) = self.params.sight.dict() else {
            return Ok(Meant::Other(None));
        };
        if !dict.has_function_named(name) {
            return Ok(Meant::Other(None));
        }
        let functions = dict.functions_meant(name);
        if functions.is_empty() {
            return Ok(Meant::Other(None));
        }
        let mut given = self.given(f)?;
        if !procedure {
            given.placed = without_out_parameters(given.placed);
        }
        let builtin = match procedure {
            true => None,
            false => self.builtin_cost(name, &given),
        };
        if builtin.is_some() && name.schema.is_none() && self.params.sight.is_stored() {
            return Ok(given.of_another());
        }
        let mut candidates: Vec<Candidate> = functions
            .into_iter()
            .filter_map(|function| self.candidate(function, &given, procedure))
            .collect();
        let best = candidates.iter().map(|c| c.cost).min();
        match (best, builtin) {
            (None, Some(_)) => return Ok(given.of_another()),
            // What PostgreSQL brings itself comes first on every path.
            (Some(best), Some(builtin)) if builtin <= best => return Ok(given.of_another()),
            (None, None) if procedure => return Err(no_procedure(name, &given)),
            (None, None) if !overloads(&name.name).is_empty() => return Ok(given.of_another()),
            (None, None) => return Err(no_function(name, &given)),
            (Some(best), _) => candidates.retain(|c| c.cost == best),
        }
        if candidates.iter().any(|c| c.spread.is_none()) {
            candidates.retain(|c| c.spread.is_none());
        }
        let fewest = candidates.iter().map(|c| c.defaults).min().unwrap_or(0);
        candidates.retain(|c| c.defaults == fewest);
        prefer_text(&mut candidates, &given);
        let [one] = candidates.as_slice() else {
            let message = format!("function {name}({}) is not unique", given.types());
            return Err(Error::new("42725", message).hint(
                "Could not choose a best candidate function. You might need to add explicit type casts.",
            ));
        };
        if one.function.procedure != procedure {
            let (is, hint) = match procedure {
                true => ("not a procedure", "To call a function, use SELECT."),
                false => ("a procedure", "To call a procedure, use CALL."),
            };
            let message = format!("{name}({}) is {is}", given.types());
            return Err(Error::new("42809", message).hint(hint));
        }
        if name.schema.is_some() {
            self.params.needs.schema(one.function.schema);
        }
        self.params.names.note(&f.name, one.function.oid)?;
        let called = self.user_called(one, given)?;
        Ok(Meant::Users(Box::new(called)))
    }

    /// What a call gives a function, if it can be meant.
    fn candidate(
        &self,
        function: Arc<Function>,
        given: &Given,
        procedure: bool,
    ) -> Option<Candidate> {
        let wanted = wanted(&function, procedure);
        let count = wanted.len();
        let mut taken: Vec<Option<usize>> = vec![None; count];
        let all: Vec<&Typed> = given.all().collect();
        let spread = spread(&function, given);
        if given.whole && !(is_variadic(&function) && given.placed.len() == count) {
            return None;
        }
        if given.placed.len() > count && spread.is_none() {
            return None;
        }
        let placed = spread.unwrap_or(given.placed.len());
        for (at, slot) in taken.iter_mut().enumerate().take(placed) {
            *slot = Some(at);
        }
        for (n, (name, _)) in given.named.iter().enumerate() {
            let at = wanted.iter().position(|a| a.name == *name)?;
            if taken[at].replace(given.placed.len() + n).is_some() {
                return None;
            }
        }
        let (mut cost, mut defaults) = (0, 0);
        for (at, (argument, taken)) in wanted.iter().zip(&taken).enumerate() {
            match (taken, spread) {
                (Some(_), _) if !argument.input => {}
                (_, Some(from)) if at + 1 == count => {
                    for value in &all[from..] {
                        cost += match argument.open {
                            Some(_) => OPEN_COST,
                            None => {
                                self.argument_cost(value.ty, argument.ty.base().element()?.base())?
                            }
                        };
                    }
                }
                (Some(n), _) if argument.open.is_some() => {
                    let ty = all[*n].ty;
                    let fits = argument.open.and_then(|open| open.element_of(ty)).is_some();
                    if ty != SqlType::Unknown && !fits {
                        return None;
                    }
                    cost += OPEN_COST;
                }
                (Some(n), _) => {
                    let ty = argument.ty;
                    // A row of one named type is none of another, and a record may be one of any.
                    if let (SqlType::Composite(from), SqlType::Composite(to)) =
                        (all[*n].ty, ty.base())
                        && from != to
                    {
                        if !from.is_record() {
                            return None;
                        }
                        cost += 1;
                        continue;
                    }
                    // Of a domain and its base type the latter is nearer.
                    cost +=
                        self.argument_cost(all[*n].ty, ty.base())? + usize::from(ty.is_domain());
                }
                (None, _) if argument.default.is_some() => defaults += 1,
                (None, _) => return None,
            }
        }
        let settled = taken.iter().enumerate().filter_map(|(at, taken)| {
            let open = wanted.get(at)?.open?;
            Some((open, all[(*taken)?].ty))
        });
        if !open_call::is_one(settled) {
            return None;
        }
        Some(Candidate {
            function,
            wanted,
            taken,
            spread,
            cost,
            defaults,
        })
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
            whole: false,
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
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(row))
                    if given.named.is_empty() =>
                {
                    given.placed.push(self.star_argument(row)?);
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(_)) => {
                    let message = "positional argument cannot follow named argument";
                    return Err(Error::new("42601", message));
                }
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } if name.value == VARIADIC && given.named.is_empty() => {
                    given.placed.push(self.expr(e)?);
                    given.whole = true;
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
        let is_plain = given.named.is_empty() && !given.whole;
        if name.schema.as_deref().is_some_and(|s| s != "pg_catalog") || !is_plain {
            return None;
        }
        let signatures = overloads(&name.name);
        let costs = signatures.iter().filter_map(|s| {
            let args = given.placed.iter().zip(s.args);
            let each = args.map(|(arg, to)| self.argument_cost(arg.ty, *to));
            let cost: Option<usize> = each.sum();
            cost.filter(|_| s.args.len() == given.placed.len())
        });
        costs.min()
    }

    fn user_called(&self, chosen: &Candidate, given: Given) -> Result<Called> {
        let function = &chosen.function;
        if function.is_trigger() {
            return Err(Error::new(
                "0A000",
                "trigger functions can only be called as triggers",
            ));
        }
        self.params.sight.note(function);
        let all: Vec<&Typed> = given.all().collect();
        let mut values = Vec::with_capacity(function.arguments.len());
        for (at, (wanted, taken)) in chosen.wanted.iter().zip(&chosen.taken).enumerate() {
            // What only goes out is named by the caller, and not computed.
            if !wanted.input {
                continue;
            }
            values.push(match (taken, chosen.spread) {
                (_, Some(from)) if at + 1 == chosen.wanted.len() => {
                    let values: Vec<Typed> = all[from..].iter().copied().cloned().collect();
                    let array = match wanted.open {
                        None => wanted.ty.base(),
                        Some(_) => array_over(&values)?,
                    };
                    self.array_of_values(values, array)?
                }
                (Some(n), _) => all[*n].clone(),
                (None, _) => self.default_of(wanted.default.as_deref())?,
            });
        }
        let types = match function.is_open() {
            true => Some(open_call::settle(function, &values)?),
            false => None,
        };
        let function = match types {
            Some(types) => Arc::new(function.settled(types)),
            None => function.clone(),
        };
        let mut args = Vec::with_capacity(values.len());
        for (value, argument) in values.into_iter().zip(&function.arguments) {
            let value = self.coerce(value, argument.ty(), -1, CastContext::Implicit)?;
            args.push(value.expr);
        }
        Ok(Called {
            function,
            args,
            types,
        })
    }

    /// A call as one value.
    /// A call as one value.
    pub fn value_of_call(&self, called: Called) -> Result<Typed> {
        let without = || Error::internal("a function without a dictionary");
        let dict = self.params.sight.dict().ok_or_else(without)?;
        let Called {
            function,
            args,
            types,
        } = called;
        if function.returns_set {
            let message = "set-valued function called in context that cannot accept a set";
            return Err(Error::new("0A000", message));
        }
        let row = match function.gives_rows() {
            true => Some(function.row_type(dict).ok_or_else(|| {
                let what = format!("the row that {} gives as a value", function.name);
                Error::unsupported(what)
            })?),
            false => None,
        };
        let func = match function.language {
            Language::C => Func::Linked(linked_func(&function)?),
            _ => Func::User(UserFunc {
                oid: function.oid,
                volatile: function.volatility == Volatility::Volatile,
                strict: function.strict,
                types,
            }),
        };
        let result = match row {
            Some(row) => SqlType::Composite(row),
            None => function.result_type().base(),
        };
        if row.is_some_and(|row| !row.is_record()) {
            self.params.sight.note_type(result);
        }
        Ok(Typed::new(Expr::Call(func, args), result))
    }

    fn default_of(&self, text: Option<&str>) -> Result<Typed> {
        let text = text.ok_or_else(|| Error::internal("an argument without a value"))?;
        let scope = Scope::default();
        let params: ParamTypes = self.params.of_stored();
        let binder = Binder::new(&scope, &params, "DEFAULT");
        let value = binder.expr(&parse::expression(text)?)?;
        self.params.note_called(&params);
        Ok(value)
    }
}

/// The type of the array that values become which a call gives one by one.
fn array_over(values: &[Typed]) -> Result<SqlType> {
    let types: Vec<SqlType> = values.iter().map(|v| v.ty).collect();
    let element = common_type(&types, "VARIADIC")?;
    let none = || Error::unsupported(format!("arrays of {}", element.name()));
    element.array().ok_or_else(none)
}

/// A function in C as an expression calls it.
pub fn linked_func(function: &Function) -> Result<LinkedFunc> {
    let missing = || Error::internal(format!("no function in C is called {}", function.body));
    Ok(LinkedFunc {
        entry: linked::find(&function.body).ok_or_else(missing)?,
        volatility: function.volatility,
        strict: function.strict,
    })
}

/// Where the arguments begin that a VARIADIC one takes, each as an element.
fn spread(function: &Function, given: &Given) -> Option<usize> {
    let from = function.arguments.len().checked_sub(1)?;
    let one_by_one = is_variadic(function) && !given.whole;
    let spreads = one_by_one && given.named.is_empty() && given.placed.len() > from;
    spreads.then_some(from)
}

fn is_variadic(function: &Function) -> bool {
    function.parameters.iter().any(|p| p.mode == Mode::Variadic)
}

/// Of several candidates for literals without a type, those that take a string.
fn prefer_text(candidates: &mut Vec<Candidate>, given: &Given) {
    if candidates.len() < 2 {
        return;
    }
    let all: Vec<&Typed> = given.all().collect();
    let takes_text = |c: &Candidate| {
        let mut each = c.wanted.iter().zip(&c.taken);
        let placed = each.all(|(argument, taken)| {
            taken.is_none_or(|n| all[n].ty != SqlType::Unknown || argument.ty.base().is_string())
        });
        let last = c.wanted.last().and_then(|w| w.ty.element());
        let mut spread = c.spread.into_iter().flat_map(|from| &all[from..]);
        let is_text = last.is_some_and(|ty| ty.base().is_string());
        placed && spread.all(|value| value.ty != SqlType::Unknown || is_text)
    };
    if candidates.iter().any(takes_text) {
        candidates.retain(takes_text);
    }
}

fn no_procedure(name: &names::Qualified, given: &Given) -> Error {
    let message = format!("procedure {name}({}) does not exist", given.types());
    Error::new("42883", message)
        .hint("No procedure matches the given name and argument types. You might need to add explicit type casts.")
}

fn no_function(name: &names::Qualified, given: &Given) -> Error {
    let message = format!("function {name}({}) does not exist", given.types());
    Error::new("42883", message)
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
