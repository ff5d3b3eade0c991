//! Converts arguments from Python, with errors that name the argument.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyDict, PyFloat, PyString};

use crate::interrupt::{is_interrupt, value_if_any};

/// Builds the error for an argument of the wrong type. If the printing of the argument was interrupted, returns the
/// interrupt.
fn wrong_type(name: &str, wanted: &str, given: &Bound<'_, PyAny>) -> PyErr {
    match shown(given) {
        Ok(shown) => PyTypeError::new_err(format!("{name} must be {wanted}, not {shown}")),
        Err(interrupt) => interrupt,
    }
}

/// Returns a value as Python prints it, cut after 80 characters; an empty text if the value cannot be printed.
pub(crate) fn shown(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value_if_any(given.py(), given.repr())?;
    Ok(text.map_or_else(String::new, |text| text.to_string_lossy().chars().take(80).collect()))
}

/// Reads a number, such as 1 or 0.5. `wanted` says what the argument must be.
fn number(name: &str, wanted: &str, given: &Bound<'_, PyAny>) -> PyResult<f64> {
    given.extract().map_err(|error| match is_interrupt(given.py(), &error) {
        true => error,
        false => wrong_type(name, wanted, given),
    })
}

/// Reads a text, and returns the Python object itself.
fn text(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    let text = given.cast::<PyString>().map_err(|_| wrong_type(name, "a string", given))?;
    Ok(text.clone().unbind())
}

/// Reads the argument `agent` of a slot.
pub(crate) fn agent(given: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    text("agent", given)
}

/// Reads the argument `weight` of a slot. Its range is checked when the slot is requested.
pub(crate) fn weight(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    number("weight", "a number", given)
}

/// Reads the argument `priority` of a slot.
pub(crate) fn priority(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    if given.is_instance_of::<PyFloat>() {
        return Err(wrong_type("priority", "a whole number", given));
    }
    given.extract().map_err(|error: PyErr| {
        let py = given.py();
        if is_interrupt(py, &error) {
            return error;
        }
        if error.is_instance_of::<PyTypeError>(py) {
            return wrong_type("priority", "a whole number", given);
        }
        shown(given).map_or_else(
            |interrupt| interrupt,
            |shown| {
                PyValueError::new_err(format!(
                    "priority must be between -2^63 and 2^63 - 1, not {shown}"
                ))
            },
        )
    })
}

/// Reads the argument `timeout` of a slot, in seconds.
pub(crate) fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() {
        return Ok(None);
    }
    number("timeout", "a number of seconds or None", given).map(Some)
}

/// Reads the argument `model` of a slot.
pub(crate) fn model(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if given.is_none() {
        return Ok(None);
    }
    let wrong = |_| wrong_type("model", "the name of a model", given);
    given.extract().map(Some).map_err(wrong)
}

/// Reads the argument `attributes` of a slot. Its names and values are checked when the slot is requested.
pub(crate) fn attributes(given: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyDict>>> {
    if given.is_none() {
        return Ok(None);
    }
    let dict = given.cast::<PyDict>();
    let dict = dict.map_err(|_| wrong_type("attributes", "a dict of names and values", given))?;
    Ok(Some(dict.clone().unbind()))
}

/// Reads the argument `explain` of a slot.
pub(crate) fn explain(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = given.cast::<PyBool>().map_err(|_| wrong_type("explain", "True or False", given))?;
    Ok(flag.is_true())
}

/// Reads the name or the value of an attribute.
pub(crate) fn attribute_text(what: &str, given: &Bound<'_, PyAny>) -> PyResult<PyBackedStr> {
    given.extract().map_err(|_| wrong_type(what, "a string", given))
}
