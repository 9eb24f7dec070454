// The kernel of Java: JShell, in the process that it runs cells in. Descriptor 3 is its socket to the interpreter. Cells come as
// frames, "KIND LENGTH\n" and as many bytes: g and v a variable of the sandbox and of the cell, c the code. Frames go back: k it is
// there, r a result, e an error, d the cell has ended. A JVM cannot change its environment: variables are system properties.
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import jdk.jshell.DeclarationSnippet;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;
import sun.misc.Signal;

public final class JavaKernel {
    private static final String[] IMPORTS = {"java.io", "java.math", "java.net", "java.nio.file", "java.util", "java.util.concurrent",
                                             "java.util.function", "java.util.regex", "java.util.stream"};

    private final InputStream input;
    private final OutputStream output;
    private final JShell shell;
    private volatile boolean running, interrupted;
    private long line; // of the cell, at which the snippet begins

    private record Frame(char kind, String text) {}

    private JavaKernel() throws Exception {
        var make = FileDescriptor.class.getDeclaredConstructor(int.class);
        make.setAccessible(true);
        FileDescriptor socket = make.newInstance(3);
        input = new BufferedInputStream(new FileInputStream(socket));
        output = new FileOutputStream(socket);
        shell = JShell.builder().executionEngine("local").build();
        for (String name : IMPORTS)
            shell.eval("import " + name + ".*;");
    }

    // ---- the socket ----

    private void send(char kind, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        var frame = new ByteArrayOutputStream(body.length + 16);
        frame.writeBytes((kind + " " + body.length + "\n").getBytes(StandardCharsets.UTF_8));
        frame.writeBytes(body);
        System.out.flush();
        System.err.flush();
        output.write(frame.toByteArray());
    }

    // Null: the interpreter has gone.
    private Frame receive() throws IOException {
        var head = new StringBuilder();
        int c;
        while ((c = input.read()) != '\n') {
            if (c < 0)
                return null;
            head.append((char) c);
        }
        int length = Integer.parseInt(head.substring(2));
        byte[] body = input.readNBytes(length);
        if (body.length < length)
            throw new EOFException();
        return new Frame(head.charAt(0), new String(body, StandardCharsets.UTF_8));
    }

    // ---- what is shown ----

    private static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\')
                out.append('\\').append(c);
            else if (c < ' ' || Character.isSurrogate(c))
                out.append(String.format("\\u%04x", (int) c));
            else
                out.append(c);
        }
        return out.append('"').toString();
    }

    // JShell tells texts and characters as they are written in programs.
    private static String plain(String value) {
        char first = value.charAt(0);
        if (value.length() < 2 || (first != '"' && first != '\'') || value.charAt(value.length() - 1) != first)
            return value;
        try {
            return value.substring(1, value.length() - 1).translateEscapes();
        } catch (IllegalArgumentException other) {
            return value;
        }
    }

    private void sendResult(String value, boolean main) throws IOException {
        send('r', "{\"type\":\"result\",\"is_main_result\":" + main + ",\"text\":" + quoted(plain(value)) + ",\"extra\":{}}");
    }

    private void sendError(String name, String value, String traceback) throws IOException {
        send('e', "{\"type\":\"error\",\"name\":" + quoted(name) + ",\"value\":" + quoted(value) + ",\"traceback\":" + quoted(traceback) + "}");
    }

    private static String trace(Throwable thrown, String name) {
        var out = new StringBuilder(name);
        if (thrown.getMessage() != null)
            out.append(": ").append(thrown.getMessage());
        for (StackTraceElement at : thrown.getStackTrace())
            out.append("\n    at ").append(at);
        if (thrown.getCause() instanceof EvalException cause)
            out.append("\nCaused by: ").append(trace(cause, cause.getExceptionClassName()));
        return out.toString();
    }

    private void tellException(JShellException thrown) throws IOException {
        if (thrown instanceof EvalException known) {
            String message = known.getMessage() == null ? "" : known.getMessage();
            sendError(known.getExceptionClassName(), message, trace(known, known.getExceptionClassName()));
        } else if (thrown instanceof UnresolvedReferenceException unresolved) {
            String value = "it needs what is not there: " + unresolved(unresolved.getSnippet());
            sendError("UnresolvedReference", value, value);
        }
    }

    private String unresolved(DeclarationSnippet snippet) {
        return shell.unresolvedDependencies(snippet).collect(Collectors.joining(", "));
    }

    private static long lines(String text) {
        return text.chars().filter(c -> c == '\n').count();
    }

    private void tellRejection(Snippet snippet) throws IOException {
        var all = new StringBuilder();
        String first = null;
        for (Diag fault : shell.diagnostics(snippet).collect(Collectors.toList())) {
            String message = fault.getMessage(Locale.ENGLISH);
            int at = (int) Math.max(0, Math.min(fault.getPosition(), snippet.source().length()));
            first = first == null ? message : first;
            all.append("line ").append(line + lines(snippet.source().substring(0, at))).append(": ").append(message).append('\n');
        }
        sendError("CompilationError", first == null ? "this is no Java" : first, all + snippet.source().strip());
    }

    private static boolean isValue(Snippet snippet) {
        return switch (snippet.subKind()) {
            case VAR_VALUE_SUBKIND, OTHER_EXPRESSION_SUBKIND, TEMP_VAR_EXPRESSION_SUBKIND -> true;
            default -> false;
        };
    }

    // ---- running ----

    // False: the cell ends here.
    private boolean take(SnippetEvent event, boolean last) throws IOException {
        Snippet snippet = event.snippet();
        if (event.causeSnippet() != null)
            return true; // told of something that was declared before
        if (interrupted)
            sendError("KeyboardInterrupt", "the cell was interrupted", "the cell was interrupted");
        else if (event.status() == Snippet.Status.REJECTED)
            tellRejection(snippet);
        else if (event.exception() != null)
            tellException(event.exception());
        else {
            if (snippet instanceof DeclarationSnippet declared && unresolved(declared).length() > 0)
                System.err.println("It can be used once there is: " + unresolved(declared));
            if (isValue(snippet) && event.value() != null && !event.value().isEmpty())
                sendResult(event.value(), last);
            return true;
        }
        return false;
    }

    // One snippet after the other. What is not complete is given to the compiler, which says so.
    private void run(String code) throws IOException {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String rest = code;
        while (!rest.isBlank()) {
            var next = analysis.analyzeCompletion(rest);
            if (next.completeness() == SourceCodeAnalysis.Completeness.EMPTY)
                return;
            line = 1 + lines(code.substring(0, code.length() - rest.length()));
            String source = next.source() == null ? rest : next.source();
            rest = next.source() == null ? "" : next.remaining();
            boolean last = rest.isBlank() || analysis.analyzeCompletion(rest).completeness() == SourceCodeAnalysis.Completeness.EMPTY;
            for (SnippetEvent event : shell.eval(source))
                if (!take(event, last))
                    return;
        }
    }

    private void runCell(String code) throws IOException {
        interrupted = false;
        running = true;
        try {
            run(code);
        } catch (IllegalStateException | StackOverflowError fault) {
            sendError(fault.getClass().getName(), String.valueOf(fault.getMessage()), trace(fault, fault.getClass().getName()));
        }
        running = false;
    }

    private void interrupt() {
        if (!running)
            return;
        interrupted = true;
        shell.stop();
    }

    private static void setVariable(String text, Map<String, String> before) {
        int at = text.indexOf('=');
        before.put(text.substring(0, at), System.setProperty(text.substring(0, at), text.substring(at + 1)));
    }

    private static void putBack(Map<String, String> before) {
        before.forEach((name, value) -> {
            if (value == null)
                System.clearProperty(name);
            else
                System.setProperty(name, value);
        });
        before.clear();
    }

    private void serve() throws IOException {
        var before = new HashMap<String, String>();
        Frame frame;
        send('k', "");
        while ((frame = receive()) != null) {
            if (frame.kind == 'g')
                setVariable(frame.text, new HashMap<>());
            else if (frame.kind == 'v')
                setVariable(frame.text, before);
            if (frame.kind != 'c')
                continue;
            runCell(frame.text);
            putBack(before);
            send('d', "");
        }
    }

    // Written through at once, so that what the cell writes and what its commands write come in their order.
    private static PrintStream open(FileDescriptor to) {
        return new PrintStream(new FileOutputStream(to), true, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        System.setIn(InputStream.nullInputStream());
        System.setOut(open(FileDescriptor.out));
        System.setErr(open(FileDescriptor.err));
        var kernel = new JavaKernel();
        Signal.handle(new Signal("INT"), signal -> kernel.interrupt());
        kernel.serve();
        System.exit(0);
    }
}
