"""What a figure of matplotlib shows, as data: chart_of(figure). Only what is drawn is looked at, nothing of the caller's data."""
import math
import re

UNIT = re.compile(r"\s\((?P<round>[^()]*)\)|\[(?P<square>[^\[\]]*)\]")


def short(value):
    """A number with about eight digits: what a picture can tell."""
    value = float(value)
    return float(f"{value:.8g}") if math.isfinite(value) else None


def angle_of(wedge):
    """Rounded as E2B rounds it: eight digits, one less for each place before the point beyond the first."""
    from decimal import Context, Decimal

    angle = Decimal(float(wedge.theta2)) - Decimal(float(wedge.theta1))
    return abs(float(Context(prec=max(1, 8 - angle.adjusted())).plus(angle)))


def plain(value):
    """A number, text or time as JSON has it."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__module__ == "numpy":
        if type(value).__name__ == "datetime64":
            return value.astype("datetime64[us]").item().isoformat()
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def is_grid_line(child):
    """A straight line from edge to edge is help for the eye and no data."""
    from matplotlib.lines import Line2D

    if not isinstance(child, Line2D):
        return False
    x, y = list(child.get_xdata()), list(child.get_ydata())
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


class Axis:
    """One axis of the axes: its label, unit, ticks and scale."""

    def __init__(self, axes, name):
        self.axis = getattr(axes, f"{name}axis")
        self.scale_name = getattr(axes, f"get_{name}scale")()
        self.label = getattr(axes, f"get_{name}label")() or None
        found = UNIT.search(self.label or "")
        self.unit = found and (found["round"] or found["square"]) or None
        self.positions = [plain(tick) for tick in getattr(axes, f"get_{name}ticks")()]
        self.tick_labels = [text.get_text() for text in getattr(axes, f"get_{name}ticklabels")()]

    def is_date(self):
        converter = getattr(self.axis, "converter", None)
        return "Date" in type(converter).__name__ or "Period" in type(converter).__name__

    def is_category(self):
        pairs = list(zip(self.positions, self.tick_labels))
        return bool(pairs) and all(at == i and text != str(i) for i, (at, text) in enumerate(pairs))

    def scale(self):
        if self.is_date():
            return "datetime"
        if self.scale_name != "linear":
            return self.scale_name
        return "categorical" if self.is_category() else "linear"

    def place(self, value):
        """What stands at a place of the axis."""
        from matplotlib.dates import num2date

        if self.is_date() and isinstance(value, (int, float)):
            return num2date(value).replace(tzinfo=None).isoformat()
        return plain(value)

    def ticks(self):
        return [self.place(at) for at in self.positions]

    def label_at(self, value):
        """The text of the tick there, or else the place itself."""
        for at, text in zip(self.positions, self.tick_labels):
            if text and isinstance(at, (int, float)) and abs(at - value) < 1e-6:
                return text
        return str(self.place(float(value)))


def numbered(label, prefix, word):
    """Names that matplotlib gave by itself are numbers of ours."""
    label = str(label)
    return f"{word} {label[len(prefix):]}" if label.startswith(prefix) else label


def points_of(xs, ys, x, y):
    return [[x.place(a), y.place(b)] for a, b in zip(xs, ys)]


def numpy_item(value):
    return value.item() if type(value).__module__ == "numpy" and type(value).__name__ != "datetime64" else value


def lines(axes, children, x, y):
    return [{"label": numbered(line.get_label(), "_child", "Line"),
             "points": points_of(map(numpy_item, line.get_xdata()), map(numpy_item, line.get_ydata()), x, y)}
            for line in children if not is_grid_line(line)]


def scatters(axes, children, x, y):
    return [{"label": numbered(one.get_label(), "_child", "Points"),
             "points": points_of(*([float(v) for v in column] for column in zip(*one.get_offsets())), x, y)
             if len(one.get_offsets()) else []}
            for one in children]


def wedges(axes, children, x, y):
    return [{"label": one.get_label(), "angle": angle_of(one), "radius": float(one.r)} for one in children]


def bars(axes, children, x, y):
    """Bars of one height lie on their side."""
    from matplotlib.container import BarContainer

    groups = [one for one in axes.containers if isinstance(one, BarContainer)]
    heights = {round(float(bar.get_height()), 9) for bar in children}
    lying = len(children) > 1 and len(heights) == 1 and len({round(float(bar.get_width()), 9) for bar in children}) > 1
    elements = []
    for group in groups:
        name = numbered(group.get_label(), "_container", "Group")
        for bar in group.patches:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if lying else bar.get_height()
            elements.append({"label": (y if lying else x).label_at(middle), "group": name, "value": plain(numpy_item(value))})
    return elements, lying


def boxes(axes, children, x, y):
    """A box is a patch; lines across and along its middle are the rest."""
    from matplotlib.lines import Line2D

    drawn = [child for child in axes.get_children() if isinstance(child, Line2D)]
    elements = []
    for box in (child for child in children if not isinstance(child, Line2D)):
        corners = box.get_path().vertices
        left, right = min(corners[:, 0]), max(corners[:, 0])
        low, high = min(corners[:, 1]), max(corners[:, 1])
        middle = (left + right) / 2
        ends, median, outliers = [low, high], None, []
        for line in drawn:
            xs, ys = [float(v) for v in line.get_xdata()], [float(v) for v in line.get_ydata()]
            if len(xs) == 2 and ys[0] == ys[1] and low <= ys[0] <= high and left - 1e-9 <= min(xs) and max(xs) <= right + 1e-9 and max(xs) - min(xs) > (right - left) * 0.6:
                median = ys[0]
            elif len(xs) == 2 and xs[0] == xs[1] and abs(xs[0] - middle) < 1e-9:
                ends += ys
            elif xs and line.get_linestyle() == "None" and all(abs(v - middle) < 1e-9 for v in xs):
                outliers += ys
        elements.append({"label": x.label_at(middle), "min": short(min(ends)), "first_quartile": short(low),
                         "median": None if median is None else short(median), "third_quartile": short(high),
                         "max": short(max(ends)), "outliers": [short(v) for v in outliers]})
    return elements


def kind_of(children):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge

    if all(isinstance(one, Line2D) for one in children):
        return "line", children
    rest = [one for one in children if not is_grid_line(one)]
    if rest and all(isinstance(one, (PathPatch, Line2D)) for one in rest):
        return "box_and_whisker", rest
    for kind, name in ((PathCollection, "scatter"), (Wedge, "pie"), (Rectangle, "bar")):
        if rest and all(isinstance(one, kind) for one in rest):
            return name, rest
    return "unknown", rest


def chart_of_axes(axes):
    from matplotlib.text import Text

    kind, children = kind_of([one for one in axes._children if not isinstance(one, Text)])
    chart = {"type": kind, "title": axes.get_title() or None, "elements": []}
    if kind == "unknown":
        return chart
    x, y = Axis(axes, "x"), Axis(axes, "y")
    if kind == "pie":
        chart["elements"] = wedges(axes, children, x, y)
        return chart
    lying = False
    if kind == "bar":
        chart["elements"], lying = bars(axes, children, x, y)
    else:
        chart["elements"] = {"line": lines, "scatter": scatters, "box_and_whisker": boxes}[kind](axes, children, x, y)
    for name, axis in (("x", y if lying else x), ("y", x if lying else y)):
        chart[f"{name}_label"], chart[f"{name}_unit"] = axis.label, axis.unit
        if kind in ("line", "scatter"):
            chart[f"{name}_ticks"], chart[f"{name}_tick_labels"], chart[f"{name}_scale"] = axis.ticks(), axis.tick_labels, axis.scale()
    return chart


def chart_of(figure):
    axes = figure.get_axes()
    if not any(one.has_data() for one in axes):
        return {}
    charts = [chart_of_axes(one) for one in axes]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if figure._suptitle else None
    return {"type": "superchart", "title": title or None, "elements": charts}
