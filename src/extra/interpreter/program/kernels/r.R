# The kernel of R. Descriptor 3 is its socket to the interpreter. R opens no descriptors, so two cats stand between; interrupts,
# which come to the whole group, are not for them. Cells come as frames, "KIND LENGTH\n" and as many bytes: g and v a variable of the
# sandbox and of the cell, c the code. Frames go back: k it is there, r a result, e an error, d the cell has ended.
#
# Interrupts hold while a cell runs, and wait otherwise.
local({
  invisible(Sys.setlocale("LC_CTYPE", "C.UTF-8"))
  input <- pipe("trap '' INT; exec cat <&3", "rb")
  output <- pipe("trap '' INT; exec cat >&3", "wb")

  send <- function(kind, text = "") {
    body <- charToRaw(text)
    flush(stdout())
    writeBin(c(charToRaw(sprintf("%s %d\n", kind, length(body))), body), output)
    flush(output)
  }

  # NULL: the interpreter has gone.
  receive <- function() {
    head <- readLines(input, 1)
    if (!length(head)) return(NULL)
    body <- readBin(input, "raw", as.integer(substring(head, 3)))
    text <- rawToChar(body[body != as.raw(0)])
    Encoding(text) <- "UTF-8"
    list(kind = substring(head, 1, 1), text = text)
  }

  # ---- what is shown ----

  # Texts as JSON has them; NA is null.
  quoted <- function(texts) {
    texts <- iconv(enc2utf8(as.character(texts)), "UTF-8", "UTF-8", sub = "\ufffd")
    out <- gsub('"', '\\"', gsub("\\", "\\\\", texts, fixed = TRUE), fixed = TRUE)
    for (code in c(1:31, 127)) {
      letter <- rawToChar(as.raw(code))
      if (any(grepl(letter, out, fixed = TRUE))) out <- gsub(letter, sprintf("\\u%04x", code), out, fixed = TRUE)
    }
    ifelse(is.na(texts), "null", paste0('"', out, '"'))
  }

  values <- function(column) {
    if (is.logical(column)) return(ifelse(is.na(column), "null", tolower(as.character(column))))
    if (is.numeric(column) && !is.object(column)) return(ifelse(is.finite(column), sprintf("%.15g", as.numeric(column)), "null"))
    if (is.list(column)) return(quoted(vapply(column, function(one) paste(deparse(one), collapse = " "), "")))
    quoted(as.character(column))
  }

  columns <- function(table) {
    lists <- vapply(table, function(column) paste0("[", paste(values(column), collapse = ","), "]"), "")
    paste0("{", paste0(quoted(names(table)), ":", lists, collapse = ","), "}")
  }

  base64 <- function(bytes) {
    letters64 <- c(LETTERS, letters, 0:9, "+", "/")
    missing <- -length(bytes) %% 3
    three <- matrix(c(as.integer(bytes), integer(missing)), 3)
    four <- rbind(three[1, ] %/% 4, three[1, ] %% 4 * 16 + three[2, ] %/% 16, three[2, ] %% 16 * 4 + three[3, ] %/% 64, three[3, ] %% 64)
    text <- letters64[four + 1]
    if (missing) text[length(text) + 1 - seq_len(missing)] <- "="
    paste(text, collapse = "")
  }

  send_result <- function(members, main) {
    send("r", sprintf('{"type":"result","is_main_result":%s,%s,"extra":{}}', if (main) "true" else "false", members))
  }

  show_value <- function(value, main) {
    lines <- capture.output(print(value))
    members <- paste0('"text":', quoted(paste(lines, collapse = "\n")))
    if (is.data.frame(value) && length(value)) members <- paste0(members, ',"data":', columns(as.data.frame(value)))
    if (length(lines)) send_result(members, main)
  }

  send_error <- function(name, value, traceback) {
    send("e", sprintf('{"type":"error","name":%s,"value":%s,"traceback":%s}', quoted(name), quoted(value), quoted(traceback)))
  }

  # ---- plots: a device of ours is opened when one is drawn, and its pages are shown when the cell ends ----

  pages <- tempfile("pages")
  dir.create(pages)
  devices <- integer()
  device_count <- 0
  options(device = function(...) {
    device_count <<- device_count + 1
    grDevices::png(file.path(pages, sprintf("%04d-%%04d.png", device_count)), width = 840, height = 600, res = 120, type = "cairo")
    devices <<- c(devices, grDevices::dev.cur())
  })

  show_plots <- function() {
    open <- grDevices::dev.list()
    for (number in devices[devices %in% open[names(open) == "png"]]) grDevices::dev.off(number)
    devices <<- integer()
    for (file in list.files(pages, full.names = TRUE)) {
      bytes <- readBin(file, "raw", file.size(file))
      unlink(file)
      if (length(bytes)) send_result(paste0('"png":"', base64(bytes), '"'), FALSE)
    }
  }

  # ---- running ----

  is_ours <- function(call) identical(call, quote(eval(quicksand_cell, globalenv())))

  # Of the calls at an error those between the cell itself and what told the error.
  calls_of_cell <- function(calls) {
    texts <- vapply(calls, function(call) deparse(call)[1], "")
    first <- max(c(0, which(vapply(calls, is_ours, NA)))) + 1
    ends <- which(grepl("^(stop|\\.handleSimpleError|h)\\(|^\\(function \\(fault\\)", texts))
    last <- min(c(length(calls), ends[ends >= first] - 1))
    if (last < first) character() else texts[first:last]
  }

  run <- function(expressions) {
    for (i in seq_along(expressions)) {
      quicksand_cell <- expressions[[i]]
      out <- allowInterrupts(withVisible(eval(quicksand_cell, globalenv())))
      if (out$visible) allowInterrupts(show_value(out$value, i == length(expressions)))
    }
  }

  tell_error <- function(fault, calls) {
    call <- conditionCall(fault)
    where <- if (is.null(call) || is_ours(call)) "" else paste0(" in ", deparse(call)[1])
    lines <- c(paste0("Error", where, ": ", conditionMessage(fault)), if (length(calls)) paste0(seq_along(calls), ": ", calls))
    send_error(class(fault)[1], conditionMessage(fault), paste(lines, collapse = "\n"))
  }

  run_told <- function(code) {
    calls <- character()
    expressions <- tryCatch(parse(text = code, keep.source = TRUE), error = function(fault) {
      send_error("ParseError", conditionMessage(fault), conditionMessage(fault))
      expression()
    })
    tryCatch(
      withCallingHandlers(run(expressions), error = function(fault) calls <<- calls_of_cell(sys.calls())),
      error = function(fault) tell_error(fault, calls),
      interrupt = function(signal) send_error("KeyboardInterrupt", "the cell was interrupted", "the cell was interrupted"))
    tryCatch(show_plots(), error = function(fault) message("quicksand: no plot: ", conditionMessage(fault)))
  }

  # Gives what was there before.
  set_variable <- function(text) {
    at <- regexpr("=", text, fixed = TRUE)
    name <- substring(text, 1, at - 1)
    before <- Sys.getenv(name, unset = NA)
    do.call(Sys.setenv, structure(list(substring(text, at + 1)), names = name))
    structure(before, names = name)
  }

  put_back <- function(before) {
    for (name in rev(names(before))) if (is.na(before[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, as.list(before[name]))
  }

  serve <- function() {
    before <- character()
    send("k")
    while (!is.null(frame <- receive())) {
      if (frame$kind == "g") set_variable(frame$text)
      if (frame$kind == "v") before <- c(before, set_variable(frame$text))
      if (frame$kind != "c") next
      tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(late) NULL)
      run_told(frame$text)
      put_back(before)
      before <- character()
      send("d")
    }
  }

  options(warn = 1)
  suspendInterrupts(serve())
})
